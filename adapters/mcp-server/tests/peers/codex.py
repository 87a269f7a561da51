"""Lets Codex, in front of a played model, call tools of a server directly and through `dormouse mcp`: the same calls have to be allowed.

    codex.py --codex PROGRAM --dormouse PROGRAM -- COMMAND… --tools NAME…
"""

import argparse
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading


class Model:
    """A model that calls each tool once, by the Responses API, and keeps what the calls return."""

    def __init__(self, tools):
        self.tools = tools
        self.outputs = {}
        self.offered = []
        self.failure = ""
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.reply(200, "application/json", json.dumps({"models": [], "data": []}))

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not self.path.endswith("/responses"):
                    return self.reply(404, "application/json", "{}")
                try:
                    events = model.respond(json.loads(body))
                except LookupError as error:
                    # Codex asks again, and the tools of a server that starts slowly may be there then.
                    model.failure = str(error)
                    return self.reply(503, "application/json", json.dumps({"error": {"message": model.failure}}))
                text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                self.reply(200, "text/event-stream", text)

            def reply(self, status, kind, text):
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def respond(self, request):
        for item in request["input"]:
            if item.get("type") == "function_call_output":
                self.outputs[item["call_id"]] = item["output"]
        self.offered = request.get("tools", [])
        waiting = [tool for tool in self.tools if tool not in self.outputs]
        if waiting:
            name, namespace = self.called_as(waiting[0])
            item = {"type": "function_call", "id": f"fc_{waiting[0]}", "call_id": waiting[0], "name": name, "arguments": "{}"}
            if namespace:
                item["namespace"] = namespace
        else:
            item = {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": "done"}]}
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None, "total_tokens": 2}
        return [
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
        ]

    def called_as(self, tool):
        """The name of a tool of the server, and the namespace that it is in, as Codex offers it to its model."""
        for offered in self.offered:
            for inner in offered.get("tools", []):
                if inner.get("name", "").endswith(tool):
                    return inner["name"], offered["name"]
            if offered.get("name", "").endswith(f"__{tool}"):
                return offered["name"], None
        raise LookupError(f"Codex offers no tool {tool}: {[offered.get('name') for offered in self.offered]}")


def run(codex, command, tools):
    """What each call returned to the model."""
    model = Model(tools)
    with tempfile.TemporaryDirectory() as home:
        with open(os.path.join(home, "config.toml"), "w", encoding="utf-8") as config:
            config.write(f"""
model = "played"
model_provider = "played"
approval_policy = "never"
sandbox_mode = "workspace-write"
[model_providers.played]
name = "played"
base_url = "http://127.0.0.1:{model.server.server_port}/v1"
wire_api = "responses"
[mcp_servers.tools]
command = {json.dumps(command[0])}
args = {json.dumps(command[1:])}
startup_timeout_sec = 60
""")
        ended = subprocess.run(
            [codex, "exec", "--skip-git-repo-check", "--color", "never", "call the tools"], cwd=home, stdin=subprocess.DEVNULL,
            env={**os.environ, "CODEX_HOME": home, "NO_PROXY": "127.0.0.1"}, capture_output=True, text=True, timeout=240, check=False)
    missing = [tool for tool in tools if tool not in model.outputs]
    if missing:
        raise SystemExit(f"Codex did not call {missing}: {model.failure}\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}")
    return model.outputs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--codex", required=True)
    parser.add_argument("--dormouse", required=True)
    parser.add_argument("--tools", required=True, help="the tools to call, separated by commas")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    tools = args.tools.split(",")
    direct = run(args.codex, args.command, tools)
    through = run(args.codex, [args.dormouse, "mcp", "--", *args.command], tools)
    different = 0
    for tool in tools:
        same = text_of(direct[tool]) == text_of(through[tool])
        different += not same
        verdict = "the same" if same else f"{text_of(through[tool])!r} through the proxy, directly"
        print(f"{tool}: {verdict}: {text_of(direct[tool])[:100]!r}")
    sys.exit(different > 0)


def text_of(output):
    """The output of a call without how long it took."""
    text = output if isinstance(output, str) else "\n".join(part.get("text", "") for part in output)
    return "\n".join(line for line in text.splitlines() if not line.startswith(("Wall time", "Output:")))


if __name__ == "__main__":
    main()
