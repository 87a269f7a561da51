"""A tool server over HTTP that asks for OAuth, and its authorization server: prints its URL, then serves until it is killed.

It accepts only the token that it issued last. The first token expires at once, later ones after an hour. `whoami` returns the token's
name, and `revoke` makes the token invalid. Each refresh token is taken once. Users grant everything, except the scope `refused`.
"""

import base64
import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

NO_ARGUMENTS = {"type": "object", "properties": {}}


class State:
    codes = {}
    tokens = 0
    valid = None


def token_answer():
    State.tokens += 1
    number = State.tokens
    State.valid = f"secret-access-{number}"
    State.refresh = f"secret-refresh-{number}"
    seconds = 1 if number == 1 else 3600
    return {"access_token": State.valid, "token_type": "Bearer", "expires_in": seconds, "refresh_token": State.refresh, "scope": "tickets"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=None, headers=()):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/.well-known/oauth-protected-resource/mcp":
            return self.answer(200, {"resource": f"{BASE}/mcp", "authorization_servers": [BASE], "scopes_supported": ["tickets"]})
        if url.path == "/.well-known/oauth-authorization-server":
            return self.answer(200, {
                "issuer": BASE, "authorization_endpoint": f"{BASE}/authorize", "token_endpoint": f"{BASE}/token",
                "registration_endpoint": f"{BASE}/register", "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"], "grant_types_supported": ["authorization_code", "refresh_token"],
            })
        if url.path == "/authorize":
            asked = {key: values[0] for key, values in parse_qs(url.query).items()}
            assert asked["resource"] == f"{BASE}/mcp" and asked["code_challenge_method"] == "S256", asked
            if asked["scope"] == "refused":
                given = {"error": "access_denied", "error_description": "not you", "state": asked["state"]}
            else:
                code = f"secret-code-{len(State.codes)}"
                State.codes[code] = asked
                given = {"code": code, "state": asked["state"]}
            return self.answer(302, headers=[("Location", f"{asked['redirect_uri']}?{urlencode(given)}")])
        self.answer(404 if url.path != "/mcp" else 405)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/register":
            asked = json.loads(body)
            return self.answer(201, {**asked, "client_id": "client-1"})
        if self.path == "/token":
            return self.token({key: values[0] for key, values in parse_qs(body.decode()).items()})
        if self.headers.get("Authorization") != f"Bearer {State.valid}":
            challenge = f'Bearer resource_metadata="{BASE}/.well-known/oauth-protected-resource/mcp"'
            return self.answer(401, headers=[("WWW-Authenticate", challenge)])
        message = json.loads(body)
        if "id" not in message:
            return self.answer(202)
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": self.result(message["method"], message.get("params", {}))})

    def token(self, asked):
        if asked["grant_type"] == "authorization_code":
            granted = State.codes.pop(asked["code"], None)
            digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            is_valid = granted and granted["code_challenge"] == challenge and granted["redirect_uri"] == asked["redirect_uri"]
        else:
            is_valid = asked["refresh_token"] == State.refresh
        is_valid = is_valid and asked["resource"] == f"{BASE}/mcp"
        self.answer(*((200, token_answer()) if is_valid else (400, {"error": "invalid_grant"})))

    def result(self, method, params):
        if method == "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        if method == "tools/list":
            return {"tools": [{"name": name, "description": name, "inputSchema": NO_ARGUMENTS} for name in ("whoami", "revoke")]}
        if method == "tools/call":
            text = f"token {State.valid.rsplit('-')[-1]}"
            if params["name"] == "revoke":
                State.valid = "none"
            return {"content": [{"type": "text", "text": text}]}
        return {}


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
BASE = f"http://127.0.0.1:{server.server_port}"
print(f"{BASE}/mcp", flush=True)
sys.stdout.close()
server.serve_forever()
