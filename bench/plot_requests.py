#!/usr/bin/env python3
"""Draws the size of each request of a long conversation, as docs/pictures/compaction.svg.

    COMPACTION_TURNS=10000 COMPACTION_CSV=/tmp/requests.csv cargo test --workspace --test kernel -- compaction
    python3 bench/plot_requests.py /tmp/requests.csv docs/pictures/compaction.svg

Left: the tokens of the request of each turn, the first 200 turns. Right: the same of all turns, as the smallest and largest request
of each of 190 equal parts.
"""

import csv
import sys

WIDTH, HEIGHT, TOP, BOTTOM = 760, 260, 40, 216
PANELS = ((56, 340), (410, 740))
FIRST_TURNS, PARTS = 200, 190


def read(path):
    with open(path, newline="") as file:
        return [(int(row["turn"]), int(row["request_tokens"])) for row in csv.DictReader(file)]


def axes(panel, last_turn, most_tokens, title):
    left, right = panel
    yield f'<text x="{left}" y="24" fill="#222222">{title}</text>'
    yield f'<path d="M{left} {TOP} V{BOTTOM} H{right}" fill="none" stroke="#666666"/>'
    for share in (0, 0.5, 1):
        y = BOTTOM - share * (BOTTOM - TOP)
        yield f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{share * most_tokens:,.0f}</text>'
        x = left + share * (right - left)
        yield f'<text x="{x:.0f}" y="{BOTTOM + 18}" text-anchor="middle">{share * last_turn:,.0f}</text>'
    yield f'<text x="{(left + right) // 2}" y="{BOTTOM + 36}" text-anchor="middle">turn</text>'


def place(panel, turn, last_turn, tokens, most_tokens):
    left, right = panel
    return f"{left + turn / last_turn * (right - left):.1f} {BOTTOM - tokens / most_tokens * (BOTTOM - TOP):.1f}"


def line(panel, requests, most_tokens):
    last_turn = requests[-1][0]
    points = " L".join(place(panel, turn, last_turn, tokens, most_tokens) for turn, tokens in requests)
    return f'<path d="M{points}" fill="none" stroke="#5b7a9d" stroke-width="1.5"/>'


def band(panel, requests, most_tokens):
    last_turn = requests[-1][0]
    size = max(1, len(requests) // PARTS)
    parts = [requests[at:at + size] for at in range(0, len(requests), size)]
    edge = [(part[-1][0], max(tokens for _, tokens in part)) for part in parts]
    edge += reversed([(part[-1][0], min(tokens for _, tokens in part)) for part in parts])
    points = " L".join(place(panel, turn, last_turn, tokens, most_tokens) for turn, tokens in edge)
    return f'<path d="M{points} Z" fill="#c3cfdd" stroke="#5b7a9d"/>'


def draw(requests):
    most_tokens = -(-max(tokens for _, tokens in requests) // 1000) * 1000
    first = requests[:FIRST_TURNS]
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/><g fill="#666666">'
    yield from axes(PANELS[0], first[-1][0], most_tokens, "tokens of each request")
    yield from axes(PANELS[1], requests[-1][0], most_tokens, "smallest and largest request")
    yield "</g>"
    yield line(PANELS[0], first, most_tokens)
    yield band(PANELS[1], requests, most_tokens)
    yield "</svg>"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    requests = read(sys.argv[1])
    if not requests:
        sys.exit(f"{sys.argv[1]} has no rows: run the test that its head names")
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(draw(requests)) + "\n")


main()
