"""A tool server that misbehaves on request. It needs no packages: `server.py [mute|exit|flood|modern|refuses|brief|restless|http]`.

With `brief`, the first one that is started ends when its tools are listed. With `restless`, the list of tools changes while it is read.

Over HTTP it prints its port, then answers each POST with JSON. It has one session at a time. The tool `forget` ends the session.
"""

import http.server
import json
import os
import sys
import threading
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
STARTS_FILE = os.environ.get("STARTS_FILE")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = {
    "echo": {"readOnlyHint": True},
    "write": {"destructiveHint": True},
    "set": {"idempotentHint": True},
    "never": {}, "die": {}, "junk": {}, "huge": {}, "wrong_id": {}, "wrong_json": {}, "strange": {},
    "ask": {}, "change": {}, "cancelled": {}, "many": {}, "fails": {}, "steps": {}, "stuck": {},
}
EXTRA = []
CANCELLED = []
WAITING = []
ANSWERS = {}
SESSION = {"number": 1, "unknown": 404}
RELEASED = threading.Event()
OUT = threading.Lock()


def send(message):
    with OUT:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text_result(text):
    return {"content": [{"type": "text", "text": text}]}


def tools(cursor):
    """A page of the list of tools: five tools each."""
    names = list(TOOLS) + EXTRA
    at = int(cursor or 0)
    page = [
        {"name": name, "description": f"The tool {name}.", "inputSchema": TEXT, "annotations": TOOLS.get(name, {})}
        for name in names[at : at + 5]
    ]
    return {"tools": page, **({"nextCursor": str(at + 5)} if at + 5 < len(names) else {})}


def answer(method, params):
    """The result of a request; None for a method that is not known."""
    if MODE == "modern":
        if method == "server/discover":
            return {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
                    "ttlMs": 0, "cacheScope": "private",
                    "serverInfo": {"name": "s", "version": "1"}}
        if method == "initialize":
            return None
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {}}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "s", "version": "1"}}
    if method == "ping":
        return {}
    if method == "tools/list":
        if MODE == "brief" and os.path.getsize(STARTS_FILE) == 1:
            os._exit(3)
        page = tools((params or {}).get("cursor"))
        if MODE == "restless" and "nextCursor" not in page and not EXTRA:
            EXTRA.append("read_resource")
            send({"method": "notifications/tools/list_changed"})
        return page
    if method == "resources/list":
        return {"resources": [{"uri": "note://1", "name": "one", "description": "A note"}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"what {params['uri']} says"}]}
    return None


def call(number, name, arguments, token=None):
    argument = arguments.get("text", "")
    if name == "never":
        return
    if name == "stuck":
        while True:
            time.sleep(1000)
    if name == "endless":
        write_endlessly(ENDLESS[argument])
    if name == "busy":
        time.sleep(float(argument))
    if name == "die":
        os._exit(3)
    if name == "junk":
        with OUT:
            sys.stdout.write("this is no message\n{\"half\": \n\n" * int(argument))
    if name == "huge":
        return send({"id": number, "result": text_result("h" * int(argument))})
    if name == "wrong_id":
        return send({"id": 987654, "result": text_result("for somebody else")})
    if name == "wrong_json":
        return send({"id": number, "answer": 42})
    if name == "strange":
        return send({"id": number, "result": {"content": "no list", "isError": "perhaps"}})
    if name == "fails":
        return send({"id": number, "error": {"code": -32000, "message": "it does not want to"}})
    if name == "ask":
        ANSWERS[number] = {}
        for method in ("ping", "roots/list", "sampling/createMessage", "elicitation/create"):
            send({"id": f"{number}/{method}", "method": method, "params": {"messages": [], "maxTokens": 1,
                  "message": "?", "requestedSchema": {"type": "object", "properties": {}}}})
        return
    if name == "change":
        EXTRA.append(argument)
        send({"method": "notifications/tools/list_changed"})
    if name == "steps":
        for step in (1, 2):
            about = {"progressToken": token, "progress": step, "total": 2, "message": f"step\n{step}"}
            send({"method": "notifications/progress", "params": about})
    if name == "cancelled":
        WAITING.append(number)
        return report_cancelled()
    if name == "many":
        return send({"id": number, "result": {"content": [
            {"type": "text", "text": "{\"n\": 1}"},
            {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "note://1", "name": "one"},
        ], "structuredContent": {"n": 1}}})
    send({"id": number, "result": text_result(f"{name}: {argument}")})


def report_cancelled():
    while WAITING and CANCELLED:
        send({"id": WAITING.pop(0), "result": text_result(f"{len(CANCELLED)} cancelled: {CANCELLED[-1]}")})


def handle(message):
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method is None:
        call_number, _, requested_method = str(number).partition("/")
        answers = ANSWERS[int(call_number)]
        answers[requested_method] = message["result"].get("action", "answered") if "result" in message else message["error"]["code"]
        if len(answers) == 4:
            send({"id": int(call_number), "result": text_result(json.dumps(answers, sort_keys=True))})
    elif method == "tools/call":
        call(number, params["name"], params.get("arguments") or {}, (params.get("_meta") or {}).get("progressToken"))
    elif method == "notifications/cancelled":
        CANCELLED.append(params.get("reason"))
        report_cancelled()
    elif number is not None:
        if MODE == "refuses" and method == "initialize":
            return send({"id": number, "error": {"code": -32000, "message": "the API key is missing"}})
        result = answer(method, params)
        unknown = {"error": {"code": -32601, "message": f"no method {method}"}}
        send({"id": number, **(unknown if result is None else {"result": result})})


def write_endlessly(message):
    """Writes one message again and again, and reads nothing."""
    many = (json.dumps({"jsonrpc": "2.0", **message}) + "\n") * 200
    while True:
        sys.stdout.write(many)
        sys.stdout.flush()


ENDLESS = {
    "ping": {"id": "p", "method": "ping"},
    "roots": {"id": "r", "method": "roots/list"},
    "sampling": {"id": "s", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
    "unknown": {"id": "u", "method": "nobody/knows"},
    "changed": {"method": "notifications/tools/list_changed"},
    "log": {"method": "notifications/message", "params": {"level": "info", "data": "noise"}},
    "cancelled": {"method": "notifications/cancelled", "params": {"requestId": 987654}},
    "progress": {"method": "notifications/progress", "params": {"progressToken": 0, "progress": 1}},
}


def stdio():
    print(f"secret is {os.environ.get('SECRET')}", file=sys.stderr, flush=True)
    print("e" * 100_000, file=sys.stderr, flush=True)
    for line in sys.stdin:
        handle(json.loads(line))


class HttpHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(405)

    do_DELETE = do_GET

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/elsewhere":
            return self.reply(307, headers=[("Location", "/mcp")])
        if self.headers.get("Authorization") != "Bearer s3cret":
            return self.reply(401, b"Bearer s3cret is missing", [("WWW-Authenticate", "Bearer")])
        number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        session = [("Mcp-Session-Id", str(SESSION["number"]))]
        if method != "initialize" and self.headers.get("Mcp-Session-Id") != session[0][1]:
            return self.reply(SESSION["unknown"], b"no such session", [("Content-Type", "text/plain")])
        if number is None:
            return self.reply(202)
        if method is None:
            # An answer to a request of this server. The response is delayed until the tool `release` is called.
            RELEASED.wait()
            return self.reply(202)
        if method == "tools/call":
            name, argument = params["name"], (params.get("arguments") or {}).get("text", "")
            if name == "never":
                time.sleep(1000)
            if name == "die":
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b"{\"jsonrpc\":")
                self.wfile.flush()
                self.close_connection = True
                return
            if name == "junk":
                return self.reply(200, b"this is no message", [("Content-Type", "application/json")])
            if name == "endless":
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                self.close_connection = True
                many = "".join(["data: ", json.dumps({"jsonrpc": "2.0", **ENDLESS[argument]}), "\n\n"] * 200).encode()
                try:
                    while True:
                        self.wfile.write(many)
                except OSError:
                    return
            if name == "hold":
                RELEASED.wait()
            if name == "release":
                RELEASED.set()
            if name == "forget":
                SESSION.update(number=SESSION["number"] + 1, unknown=int(argument))
            result = text_result("h" * int(argument)) if name == "huge" else text_result(f"{name}: {argument}")
        else:
            result = answer(method, params)
        unknown = {"error": {"code": -32601, "message": f"no method {method}"}}
        response = {"jsonrpc": "2.0", "id": number, **(unknown if result is None else {"result": result})}
        session_headers = session if method == "initialize" else []
        self.reply(200, json.dumps(response).encode(), [("Content-Type", "application/json"), *session_headers])


if STARTS_FILE:
    with open(STARTS_FILE, "a") as starts:
        starts.write("x")
if MODE == "mute":
    time.sleep(1000)
elif MODE == "exit":
    sys.exit(1)
elif MODE == "flood":
    while True:
        sys.stdout.write("junk " * 1000 + "\n")
elif MODE == "http":
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), HttpHandler)
    print(http_server.server_port, flush=True)
    http_server.serve_forever()
else:
    stdio()
