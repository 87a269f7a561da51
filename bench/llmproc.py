#!/usr/bin/env python3
"""The same work in llmproc and in Dormouse, in one run: open a descriptor, read its last page. See README.md."""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PEER = "llmproc==0.9.5"
SIZES = [1_000_000, 10_000_000]
LINE = "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon.\n"
CREATIONS = 3
READS = 101


def median_ns(runs, run):
    taken = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        run()
        taken.append(time.perf_counter_ns() - start)
    return int(statistics.median(taken))


def measure(chars):
    """What llmproc takes. Runs inside of its environment."""
    from llmproc.file_descriptors import FileDescriptorManager

    text = LINE * (chars // len(LINE))
    manager = FileDescriptorManager(default_page_size=4000, max_direct_output_chars=8000)
    create = median_ns(CREATIONS, lambda: manager.create_fd_from_tool_result(text, "bench"))
    entry = manager.file_descriptors["fd:1"]
    pages = entry["total_pages"]
    read = median_ns(READS, lambda: manager.read_fd_content("fd:1", mode="page", start=pages, count=1))
    return {"chars": chars, "lines": entry["total_lines"], "pages": pages, "create_ns": create, "read_ns": read}


def peer_python():
    """The interpreter of an environment that holds llmproc; makes it in the first run."""
    cache = Path(os.environ.get("DORMOUSE_BENCH") or Path.home() / ".cache" / "dormouse-bench")
    python = cache / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", cache / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER], check=True)
    return python


def figures(command, cwd=None):
    output = subprocess.run([*command, *map(str, SIZES)], check=True, stdout=subprocess.PIPE, cwd=cwd).stdout
    return json.loads(output)


def main():
    # Isolated (-I), so that `import llmproc` does not find this file.
    theirs = figures([peer_python(), "-I", __file__, "measure"])
    cargo = ["cargo", "run", "--quiet", "--release", "-p", "dormouse-bench", "--bin", "descriptors", "--"]
    ours = figures(cargo, cwd=Path(__file__).resolve().parent.parent)
    print(f"{'':24} {PEER:>16} {'dormouse':>12} {'ratio':>10}")
    for their, our in zip(theirs, ours, strict=True):
        same = [their[key] == our[key] for key in ("chars", "lines", "pages")]
        assert all(same), f"not the same work: {their} {our}"
        for key, what in (("create_ns", "create"), ("read_ns", "read the last page")):
            label = f"{their['chars'] // 1_000_000:>3} MB {what}"
            print(f"{label:24} {their[key] / 1e3:>13,.1f} µs {our[key] / 1e3:>9,.1f} µs {their[key] / our[key]:>9,.0f}x")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps([measure(int(size)) for size in sys.argv[2:]]))
    else:
        main()
