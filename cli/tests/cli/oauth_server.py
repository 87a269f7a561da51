"""A tool server over HTTP that asks for OAuth, and its authorization server: prints its URL, then serves until it is killed.

It accepts only the token that it issued last. The first token expires at once, later ones after an hour. `whoami` returns the token's
name, and `revoke` makes the token invalid. Each refresh token is taken once. Users grant everything, except the scope `refused`.

With the argument `device` its metadata offers logins by a code (RFC 8628). The first request for the token is too early, the second is told
to slow down, and the third is granted, if the user has opened the address by then. The scope `late` has a code that expires at once. With the argument
`tls` its addresses begin with https:, for a test that stands between it and its clients.
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
    devices = {}


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

    @property
    def base(self):
        return f"http{'s' if 'tls' in sys.argv else ''}://{self.headers['Host']}"

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
            return self.answer(200, {"resource": f"{self.base}/mcp", "authorization_servers": [self.base], "scopes_supported": ["tickets"]})
        if url.path == "/.well-known/oauth-authorization-server":
            device = {"device_authorization_endpoint": f"{self.base}/device"} if "device" in sys.argv else {}
            return self.answer(200, {
                **device, "issuer": self.base, "authorization_endpoint": f"{self.base}/authorize", "token_endpoint": f"{self.base}/token",
                "registration_endpoint": f"{self.base}/register", "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"], "grant_types_supported": ["authorization_code", "refresh_token"],
            })
        if url.path == "/authorize":
            asked = {key: values[0] for key, values in parse_qs(url.query).items()}
            assert asked["resource"] == f"{self.base}/mcp" and asked["code_challenge_method"] == "S256", asked
            if asked["scope"] == "refused":
                given = {"error": "access_denied", "error_description": "not you", "state": asked["state"]}
            else:
                code = f"secret-code-{len(State.codes)}"
                State.codes[code] = asked
                given = {"code": code, "state": asked["state"]}
            return self.answer(302, headers=[("Location", f"{asked['redirect_uri']}?{urlencode(given)}")])
        if url.path == "/enter":
            State.devices[parse_qs(url.query)["user_code"][0]]["is_granted"] = True
            return self.answer(200)
        self.answer(404 if url.path != "/mcp" else 405)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/device":
            return self.device({key: values[0] for key, values in parse_qs(body.decode()).items()})
        if self.path == "/register":
            asked = json.loads(body)
            return self.answer(201, {**asked, "client_id": "client-1"})
        if self.path == "/token":
            return self.token({key: values[0] for key, values in parse_qs(body.decode()).items()})
        if self.headers.get("Authorization") != f"Bearer {State.valid}":
            challenge = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            return self.answer(401, headers=[("WWW-Authenticate", challenge)])
        message = json.loads(body)
        if "id" not in message:
            return self.answer(202)
        self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": self.result(message["method"], message.get("params", {}))})

    def device(self, asked):
        assert asked["resource"] == f"{self.base}/mcp" and asked["client_id"] == "client-1", asked
        code = f"WDJB-{len(State.devices)}"
        State.devices[code] = {"scope": asked["scope"], "requests": 0, "is_granted": False}
        expires_in = 1 if asked["scope"] == "late" else 600
        address = f"{self.base}/enter"
        self.answer(200, {
            "device_code": f"secret-device-{code}", "user_code": code, "verification_uri": address,
            "verification_uri_complete": f"{address}?user_code={code}", "expires_in": expires_in, "interval": 1,
        })

    def device_error(self, asked):
        device = State.devices[asked["device_code"].removeprefix("secret-device-")]
        device["requests"] += 1
        if device["scope"] == "refused":
            return {"error": "access_denied", "error_description": "not you"}
        if device["requests"] == 2:
            return {"error": "slow_down"}
        return None if device["requests"] > 1 and device["is_granted"] else {"error": "authorization_pending"}

    def token(self, asked):
        if asked["grant_type"] == "urn:ietf:params:oauth:grant-type:device_code":
            error = self.device_error(asked)
            if error:
                return self.answer(400, error)
            is_valid = asked["client_id"] == "client-1"
        elif asked["grant_type"] == "authorization_code":
            granted = State.codes.pop(asked["code"], None)
            digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            is_valid = granted and granted["code_challenge"] == challenge and granted["redirect_uri"] == asked["redirect_uri"]
        else:
            is_valid = asked["refresh_token"] == State.refresh
        is_valid = is_valid and asked["resource"] == f"{self.base}/mcp"
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
print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
sys.stdout.close()
server.serve_forever()
