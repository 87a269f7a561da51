"""Writes the table of features into a page of the book: feature_table.py PAGE VERDICTS.json…, each written by features.py --json."""

import json
import pathlib
import sys

BEGIN = "<!-- The table is written by .ci/mcp-features. -->\n"
END = "<!-- End of the table. -->\n"


def cell(verdict):
    if verdict == "none":
        return "–"
    return verdict if verdict.startswith("same") else "differs"


page, files = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
verdicts = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
lines = ["| feature | " + " | ".join(verdicts) + " |", "|---" * (len(verdicts) + 1) + "|"]
for feature in next(iter(verdicts.values())):
    lines.append(f"| {feature} | " + " | ".join(cell(found[feature]) for found in verdicts.values()) + " |")
    for name, found in verdicts.items():
        if cell(found[feature]) == "differs":
            print(f"{name}, {feature}: {found[feature]}", file=sys.stderr)
text = page.read_text(encoding="utf-8")
before, rest = text.split(BEGIN)
after = rest.split(END)[1]
page.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + after, encoding="utf-8")
