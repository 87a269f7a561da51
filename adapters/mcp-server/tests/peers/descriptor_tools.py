"""Writes what a proxy tells its client about descriptors: `descriptor_tools.py COMMAND…` prints {instructions, tools} as JSON."""

import json
import subprocess
import sys

DESCRIPTOR_TOOLS = ("_fd", "_fds", "_fd_section", "_fd_sections")

child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(number, method, params):
    child.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())["result"]


hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "count", "version": "1"}}
instructions = ask(1, "initialize", hello)["instructions"]
tools = [tool for tool in ask(2, "tools/list", {})["tools"] if tool["name"].endswith(DESCRIPTOR_TOOLS)]
child.stdin.close()
child.wait()
print(json.dumps({"instructions": instructions, "tools": tools}, ensure_ascii=False))
