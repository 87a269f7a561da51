"""A tool server that keeps what it is told: `remember` adds a text, `recall` returns all of them, and `large` returns many lines. `levels` returns the
levels of log messages that clients asked for, which it refuses if REFUSES_LEVEL is set.

It writes an `s` to STARTS_FILE at each start. It ends at once if the file FAIL_FILE exists, and is ready once the file READY_FILE exists.
"""

import json
import os
import sys
import time

TEXTS = []
LEVELS = []
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
NAMES = os.environ.get("TOOL_NAMES", "remember recall large").split()
if "TOOL_NAMES_FILE" in os.environ:
    with open(os.environ["TOOL_NAMES_FILE"], encoding="utf-8") as names_file:
        NAMES = names_file.read().split()


def call(name, text):
    if name == "remember":
        TEXTS.append(text)
        return f"{len(TEXTS)} kept by {os.getpid()}"
    if name == "large":
        return "".join(f"{text} {number}\n" for number in range(5_000))
    return json.dumps(LEVELS if name == "levels" else TEXTS)


def answer(method, params):
    if method == "logging/setLevel":
        LEVELS.append(params["level"])
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "description": f"The tool {name}.", "inputSchema": TEXT} for name in NAMES]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": call(params["name"], params["arguments"].get("text", ""))}]}
    return {}


starts = os.environ.get("STARTS_FILE")
if starts:
    with open(starts, "a", encoding="utf-8") as file:
        file.write("s")
if os.path.exists(os.environ.get("FAIL_FILE", "")):
    sys.exit("its database is locked")
while "READY_FILE" in os.environ and not os.path.exists(os.environ["READY_FILE"]):
    time.sleep(0.02)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        if message["method"] == "logging/setLevel" and "REFUSES_LEVEL" in os.environ:
            end = {"error": {"code": -32602, "message": "there is no such level here"}}
        else:
            end = {"result": answer(message["method"], message.get("params", {}))}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **end}), flush=True)
