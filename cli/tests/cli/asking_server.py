"""A tool server that asks the user while it runs a call, and returns the answer as JSON: `release` asks for values, `open` that a page is opened."""

import json
import sys

VALUES = {
    "type": "object",
    "properties": {
        "copies": {"type": "integer", "minimum": 1, "default": 2},
        "notify": {"type": "boolean"},
        "stage": {"type": "string", "enum": ["test", "live"]},
        "version": {"type": "string", "description": "Which one"},
    },
    "required": ["stage", "version"],
}
QUESTIONS = {
    "release": {"mode": "form", "message": "What is released?\x1b[2J", "requestedSchema": VALUES},
    "open": {"mode": "url", "message": "Log in.", "elicitationId": "1", "url": "https://login.example/"},
}


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message.get("method")
    if method == "initialize":
        SERVER = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        send({"id": number, "result": SERVER})
    elif method == "tools/list":
        send({"id": number, "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in QUESTIONS]}})
    elif method == "tools/call":
        send({"id": f"q{number}", "method": "elicitation/create", "params": QUESTIONS[message["params"]["name"]]})
    elif method is None and isinstance(number, str):
        answer = message.get("result", message.get("error"))
        send({"id": int(number[1:]), "result": {"content": [{"type": "text", "text": json.dumps(answer)}]}})
    elif number is not None:
        send({"id": number, "result": {}})
