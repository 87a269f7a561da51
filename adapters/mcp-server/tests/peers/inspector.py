"""Reads a file through `dormouse mcp` with the command line of MCP Inspector. The inspector starts the server anew for each call, so the next call finds only what the store keeps. It sends numbers as strings."""

import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree


def main(inspector, path, server):
    def request(method, *arguments):
        done = subprocess.run([*inspector, "--cli", *server, "--method", method, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    def call(tool, **arguments):
        pairs = [part for name, value in arguments.items() for part in ("--tool-arg", f"{name}={value}")]
        answer = request("tools/call", "--tool-name", tool, *pairs)
        assert not answer.get("isError"), answer["content"][0]["text"][:500]
        return ElementTree.fromstring(answer["content"][0]["text"])

    with open(path, encoding="utf-8", newline="") as file:
        original = file.read()
    started = time.monotonic()
    names = [tool["name"] for tool in request("tools/list")["tools"]]
    assert {"read_text_file", "read_fd"} <= set(names), names
    preview = call("read_text_file", path=path)
    fd, pages = preview.get("fd"), int(preview.get("pages"))
    read = [call("read_fd", fd=fd, page=page).text for page in range(1, pages + 1)]
    assert "".join(read) == original, "the pages are not the file"
    print(f"inspector: {len(original)} characters in {pages} pages, {time.monotonic() - started:.1f} s")


split = sys.argv.index("--")
main(sys.argv[2:split], sys.argv[1], sys.argv[split + 1 :])
