"""Plays Amazon Bedrock and Google Vertex AI: checks how a request authenticates itself and what it says, and streams a reply.

The signatures of AWS are computed here once more, with nothing but the standard library, as "Signature Version 4" describes them; the
messages of its event streams are built from the description of their bytes. Prints its port, and serves until it is killed.
"""

import base64
import datetime
import hashlib
import hmac
import http.server
import json
import struct
import urllib.parse
import zlib

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN, REGION = "AKIDEXAMPLE", "s3cret-access-key", "s3cret-session", "eu-central-1"
BEARER = "s3cret-bearer"


class Refused(Exception):
    def __init__(self, status, kind, message):
        self.status, self.kind, self.message = status, kind, message


def signature(handler, body, signed_names, date, scope):
    """The signature that the request should have."""
    path, _, query = handler.path.partition("?")
    # The path on the wire is encoded; all services but S3 encode it once more.
    path = urllib.parse.quote(path, safe="/-_.~")
    query = "&".join(sorted(query.split("&"))) if query else ""
    headers = "".join(f"{name}:{' '.join(handler.headers[name].split())}\n" for name in signed_names)
    request = "\n".join(["POST", path, query, headers, ";".join(signed_names), hashlib.sha256(body).hexdigest()])
    digest = hashlib.sha256(request.encode()).hexdigest()
    to_sign = "\n".join(["AWS4-HMAC-SHA256", date, "/".join(scope), digest])
    key = ("AWS4" + SECRET_KEY).encode()
    for part in scope:
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()


def check_aws(handler, body):
    authorization = handler.headers.get("authorization", "")
    if authorization == f"Bearer {BEARER}":
        return "bearer"
    refused = lambda why: Refused(403, "UnrecognizedClientException", f"{why}: {authorization}")
    algorithm, _, fields = authorization.partition(" ")
    if algorithm != "AWS4-HMAC-SHA256":
        raise refused("no signature")
    fields = dict(field.strip().split("=", 1) for field in fields.split(","))
    key, *scope = fields["Credential"].split("/")
    date = handler.headers["x-amz-date"]
    if key != ACCESS_KEY or scope != [date[:8], REGION, "bedrock", "aws4_request"]:
        raise refused("another key or scope")
    age = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.strptime(date + "+0000", "%Y%m%dT%H%M%SZ%z")
    if abs(age) > datetime.timedelta(minutes=5):
        raise refused("an old signature")
    names = fields["SignedHeaders"].split(";")
    if names != sorted(names) or not {"host", "x-amz-date"} <= set(names):
        raise refused("headers that have to be signed are not")
    token = handler.headers.get("x-amz-security-token")
    if token is not None and (token != SESSION_TOKEN or "x-amz-security-token" not in names):
        raise refused(f"another session {token}")
    if not hmac.compare_digest(fields["Signature"], signature(handler, body, names, date, scope)):
        raise refused("the signature does not match")
    return "signed" if token is None else "signed in a session"


def check_google(handler):
    authorization = handler.headers.get("authorization", "")
    if authorization != f"Bearer {BEARER}":
        raise Refused(401, "UNAUTHENTICATED", f"no valid token: {authorization}")
    return "bearer"


def anthropic_events(text):
    start = {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 3}}}
    yield start
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in (text[:5], text[5:]):
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
    yield {"type": "message_stop"}


def gemini_events(text):
    for piece in (text[:5], text[5:]):
        yield {"candidates": [{"content": {"role": "model", "parts": [{"text": piece}]}}]}
    yield {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}], "usageMetadata": {}}


def frame(headers, payload):
    """A message of an event stream: lengths, their checksum, headers, payload, checksum of all."""
    encoded = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 12 + len(encoded) + len(payload) + 4, len(encoded))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + encoded + payload
    return message + struct.pack(">I", zlib.crc32(message))


def chunk(event):
    payload = {"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abc"}
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, json.dumps(payload).encode())


def exception(kind, message):
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps({"message": message}).encode())


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            kind, answer = self.token(body) if self.path == "/token" else self.answer(body)
            self.send(200, kind, answer)
        except Refused as refused:
            error = {"message": refused.message}
            if not self.path.startswith("/model/"):
                error = {"error": {"code": refused.status, "status": refused.kind, **error}}
            self.send(refused.status, "application/json", json.dumps(error).encode())

    def token(self, body):
        """A token for a service account, which shows a claim that its key has signed."""
        claim = urllib.parse.parse_qs(body.decode())["assertion"][0].split(".")[1]
        claim = json.loads(base64.urlsafe_b64decode(claim + "==="))
        if claim["scope"] != "https://www.googleapis.com/auth/cloud-platform" or claim["iss"] != "robot@example":
            raise Refused(400, "invalid_grant", f"not such a claim: {claim}")
        return "application/json", json.dumps({"access_token": BEARER, "expires_in": 3600, "token_type": "Bearer"}).encode()

    def answer(self, body):
        request = json.loads(body)
        if self.path.startswith("/model/"):
            return self.bedrock(check_aws(self, body), request)
        how = check_google(self)
        seen = json.dumps({"path": self.path, "how": how, "body": request})
        if "/publishers/google/" in self.path:
            lines = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in gemini_events(seen))
            return "text/event-stream", lines.encode()
        if request.get("anthropic_version") != "vertex-2023-10-16":
            raise Refused(400, "INVALID_ARGUMENT", "anthropic_version: field required")
        if self.path.endswith("/count-tokens:rawPredict"):
            return "application/json", json.dumps({"input_tokens": len(request["model"])}).encode()
        if "model" in request or self.path.endswith(":streamRawPredict") != request["stream"]:
            raise Refused(400, "INVALID_ARGUMENT", f"extra inputs are not permitted: {list(request)}")
        lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in anthropic_events(seen))
        return "text/event-stream; charset=utf-8", lines.encode()

    def bedrock(self, how, request):
        if request.get("anthropic_version") != "bedrock-2023-05-31" or {"model", "stream", "cache_control"} & set(request):
            raise Refused(400, "ValidationException", f"extra inputs are not permitted: {list(request)}")
        _, _, model, verb = self.path.split("/")
        text = json.dumps({"path": self.path, "how": how, "body": request})
        if verb == "invoke":
            message = {"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": {}}
            return "application/json", json.dumps(message).encode()
        frames = [chunk(event) for event in anthropic_events(text)]
        match urllib.parse.unquote(model):
            case "throttled":
                raise Refused(429, "ThrottlingException", "Too many requests, please wait before trying again.")
            case "too.long":
                raise Refused(400, "ValidationException", "Input is too long for requested model.")
            case "throttled.later":
                frames[3:] = [exception("throttlingException", "slow down")]
            case "failed.later":
                frames[3:] = [exception("modelStreamErrorException", "the model fell over")]
            case "cut":
                frames[3:] = [frames[3][:20]]
            case "corrupt":
                frames[2] = frames[2][:-1] + bytes([frames[2][-1] ^ 1])
            case "unknown.events":
                other = {":event-type": "metadata", ":message-type": "event"}
                frames.insert(2, frame(other, b"{}"))
        return "application/vnd.amazon.eventstream", b"".join(frames)

    def send(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        # In pieces that end anywhere.
        for at in range(0, len(body), 37):
            self.wfile.write(body[at : at + 37])
            self.wfile.flush()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
