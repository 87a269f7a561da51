"""Compares what a client gets of a tool server directly and through `dormouse mcp`, feature by feature.

    features.py --dormouse PROGRAM [--json] [--calls CALLS.json] -- COMMAND…

CALLS.json is a list of [tool, arguments]: the calls whose results are compared. Prints a line for each feature: `same`, `none` where the
server does not have it, or what differs, and exits with 1 if anything differs.
"""

import argparse
import base64
import json
import re
import subprocess
import sys
import threading

WAIT_SECONDS = 60
# What the client declares and answers, so that servers ask for it.
CAPABILITIES = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}}}
ROOTS = {"roots": [{"uri": "file:///roots/one", "name": "one"}]}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "a played reply"}, "model": "played", "stopReason": "endTurn"}


def filled_form(schema):
    """Values for the fields of a form that a server shows to a user."""
    def value(field):
        if "enum" in field:
            return field["enum"][0]
        if "oneOf" in field:
            return field["oneOf"][0]["const"]
        if field.get("type") == "array":
            return []
        texts = {"email": "a@example.org", "uri": "https://example.org", "date": "2026-01-01", "date-time": "2026-01-01T00:00:00Z"}
        return {"boolean": True, "integer": field.get("minimum", 1), "number": field.get("minimum", 1)}.get(
            field.get("type"), texts.get(field.get("format"), "x" * field.get("minLength", 1)))
    return {name: value(field) for name, field in schema.get("properties", {}).items()}


class Client:
    """A client over the standard streams of a command. It answers what the server asks for."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.last = 0
        self.answers = {}
        self.arrived = threading.Condition()
        self.notifications = []
        self.asked = []
        self.ended = False
        self.answered = None
        threading.Thread(target=self.read, daemon=True).start()
        params = {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "clientInfo": {"name": "features", "version": "1"}}
        self.introduction = self.ask("initialize", params)["result"]
        self.tell("notifications/initialized")

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            with self.arrived:
                if "method" not in message:
                    self.answers[message["id"]] = message
                elif "id" in message:
                    self.asked.append([message["method"], {k: v for k, v in message.get("params", {}).items() if k != "_meta"}])
                    self.reply(message)
                else:
                    self.notifications.append([message["method"], message.get("params", {})])
                self.arrived.notify_all()
        with self.arrived:
            self.ended = True
            self.arrived.notify_all()

    def reply(self, request):
        results = {
            "ping": lambda _: {},
            "roots/list": lambda _: ROOTS,
            "sampling/createMessage": lambda _: SAMPLED,
            "elicitation/create": lambda params: {"action": "accept", "content": filled_form(params.get("requestedSchema", {}))},
        }
        result = results[request["method"]](request.get("params", {}))
        self.write({"id": request["id"], "result": result})

    def write(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def tell(self, method, params=None):
        self.write({"method": method, "params": params or {}})

    def send(self, method, params=None):
        self.last += 1
        self.write({"id": self.last, "method": method, "params": params or {}})
        return self.last

    def answer(self, number):
        with self.arrived:
            arrived = self.arrived.wait_for(lambda: number in self.answers or self.ended, WAIT_SECONDS)
            if not arrived or number not in self.answers:
                raise TimeoutError(f"no answer to request {number}")
            return self.answers.pop(number)

    def ask(self, method, params=None):
        return self.answer(self.send(method, params))

    def call(self, tool, arguments=None, meta=None):
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}, **({"_meta": meta} if meta else {})})

    def notification_of_call(self, tool, arguments, method):
        """Calls a tool, waits for a notification, and returns its parameters."""
        with self.arrived:
            before = len(self.notifications)
        self.call(tool, arguments)
        with self.arrived:
            found = lambda: [params for name, params in self.notifications[before:] if name == method]
            if not self.arrived.wait_for(found, WAIT_SECONDS):
                raise TimeoutError(f"no {method}")
            return found()[0]

    def answers_of(self, calls):
        """The answers to all calls that do nothing but return a result. Each call is made once."""
        if self.answered is None:
            self.answered = [self.call(tool, arguments) for tool, arguments in calls if tool not in ACTIVE_TOOLS]
        return self.answered

    def list(self, method, key):
        """All entries of a list; None if the server does not know the method."""
        entries, cursor = [], None
        while True:
            page = self.ask(method, {"cursor": cursor} if cursor else {})
            if "error" in page:
                return None
            entries += page["result"][key]
            cursor = page["result"].get("nextCursor")
            if not cursor:
                return entries

    def has(self, *path):
        found = self.introduction["capabilities"]
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found is not None and found is not False

    def tools(self):
        return {tool["name"]: tool for tool in self.list("tools/list", "tools") or []}

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def moved_back(schema):
    """The server's own schema of results, of which ours admits the text of a descriptor too."""
    if not schema or "anyOf" not in schema or "dormouse_text" not in json.dumps(schema["anyOf"][-1]):
        return schema
    own = json.loads(json.dumps(schema["anyOf"][0]).replace('"#/anyOf/0', '"#'))
    return {**({"$schema": schema["$schema"]} if "$schema" in schema else {}), **own}


def of_tools(key, default=None, change=lambda value: value):
    def probe(client, names, _calls):
        found = {name: change(tool.get(key, default)) for name, tool in client.tools().items() if name in names}
        return found if any(value is not None for value in found.values()) else None
    return probe



def results(select):
    """Probes a part of the results of all calls."""
    def probe(client, _names, calls):
        found = [select(answer["result"]) for answer in client.answers_of(calls) if "result" in answer]
        return found if any(part not in (None, [], False) for part in found) else None
    return probe


def blocks(*kinds):
    def select(result):
        return [block for block in result["content"] if block["type"] in kinds]
    return results(select)


def refusals(client, names, _calls):
    """A failure of a tool (arguments that are wrong) is a result with `isError`, or an error of the protocol: its kind is compared."""
    def kind(answer):
        return "error" if "error" in answer or answer["result"].get("isError") else "result"
    return {name: kind(client.call(name, {"no such argument": {}})) for name in sorted(names)[:3]}


def resources(client, _names, _calls):
    if not client.has("resources"):
        return None
    listed = client.list("resources/list", "resources")
    own = [resource for resource in listed if not resource["uri"].startswith("fd://")]
    first = own[:3]
    read = [client.ask("resources/read", {"uri": resource["uri"]}).get("result") for resource in first]
    return [own, read] if own else None


def templates(client, _names, _calls):
    if not client.has("resources"):
        return None
    listed = client.list("resources/templates/list", "resourceTemplates") or []
    return [template for template in listed if not template["uriTemplate"].startswith("fd://")] or None


def subscriptions(client, _names, calls):
    if not client.has("resources", "subscribe"):
        return None
    own = [resource for resource in client.list("resources/list", "resources") if not resource["uri"].startswith("fd://")]
    uri = own[0]["uri"]
    subscribed = "result" in client.ask("resources/subscribe", {"uri": uri})
    for tool, arguments in calls:
        if tool in ("toggle-subscriber-updates", "touch"):
            client.notification_of_call(tool, arguments, "notifications/resources/updated")
    return [subscribed, "result" in client.ask("resources/unsubscribe", {"uri": uri})]


def prompts(client, _names, _calls):
    if not client.has("prompts"):
        return None
    listed = client.list("prompts/list", "prompts")
    values = {prompt["name"]: {argument["name"]: "1" for argument in prompt.get("arguments", [])} for prompt in listed}
    filled = [client.ask("prompts/get", {"name": name, "arguments": arguments}).get("result") for name, arguments in values.items()]
    return [listed, filled] if listed else None


def completions(client, _names, _calls):
    if not client.has("completions"):
        return None
    found = []
    for prompt in client.list("prompts/list", "prompts") or []:
        for argument in prompt.get("arguments", []):
            reference = {"ref": {"type": "ref/prompt", "name": prompt["name"]}, "argument": {"name": argument["name"], "value": ""}}
            found.append(client.ask("completion/complete", reference).get("result"))
    for template in templates(client, None, None) or []:
        reference = {"ref": {"type": "ref/resource", "uri": template["uriTemplate"]}, "argument": {"name": "id", "value": "1"}}
        found.append(client.ask("completion/complete", reference).get("result"))
    return found or None


def instructions(client, _names, _calls):
    return client.introduction.get("instructions")


def logging(client, _names, calls):
    if not client.has("logging"):
        return None
    level = "result" in client.ask("logging/setLevel", {"level": "debug"})
    for tool, arguments in calls:
        if tool in ("toggle-simulated-logging", "log"):
            message = client.notification_of_call(tool, arguments, "notifications/message")
            level = [level, sorted(message)]
    return level


def progress(client, _names, calls):
    found = []
    for tool, arguments in calls:
        if tool in ("trigger-long-running-operation", "steps"):
            client.call(tool, arguments, {"progressToken": f"token of {tool}"})
            reported = [params for name, params in client.notifications if name == "notifications/progress"]
            # A reader that is slow gets the latest progress, which is the last one in any case.
            found.append(reported[-1] if reported else "no progress")
    return found or None


def list_changed(client, names, calls):
    for tool, arguments in calls:
        if tool == "grow":
            client.notification_of_call(tool, arguments, "notifications/tools/list_changed")
            new = sorted(set(client.tools()) - names - OURS)
            return [new, [client.call(name, {})["result"] for name in new]]
    return None


def asked(method, *tools):
    """What the server asks the client for, and what it makes of the answer."""
    def probe(client, names, calls):
        found = []
        for tool, arguments in calls:
            if tool in tools:
                before = len(client.asked)
                answer = client.call(tool, arguments)
                asked_for = [request for request in client.asked[before:] if request[0] == method]
                found.append([asked_for, answer.get("result")])
        return found or None
    return probe


# Tools that notify the client or ask it for something: each is called for the feature that it shows.
ACTIVE_TOOLS = {
    "toggle-subscriber-updates", "touch", "toggle-simulated-logging", "log", "trigger-long-running-operation", "steps", "grow",
    "get-roots-list", "roots", "trigger-sampling-request", "sample", "trigger-elicitation-request", "elicit",
}
# The names of the proxy's own tools: those that no server offers.
OURS = set()
FEATURES = {
    "tools: names": lambda client, names, calls: sorted(set(client.tools()) & names) or None,
    "tools: descriptions": of_tools("description"),
    "tools: parameters": of_tools("inputSchema"),
    "tools: hints": of_tools("annotations"),
    "tools: titles": of_tools("title"),
    "tools: icons": of_tools("icons"),
    "tools: `_meta`": of_tools("_meta"),
    "tools: output schemas": of_tools("outputSchema", change=moved_back),
    "results: text": blocks("text"),
    "results: images": blocks("image"),
    "results: audio": blocks("audio"),
    "results: resources": blocks("resource"),
    "results: links": blocks("resource_link"),
    "results: structured content": results(lambda result: result.get("structuredContent")),
    "results: `_meta`": results(lambda result: result.get("_meta")),
    "results: failures": results(lambda result: result.get("isError", False)),
    "refused calls": refusals,
    "resources": resources,
    "resource templates": templates,
    "subscriptions": subscriptions,
    "prompts": prompts,
    "completions": completions,
    "instructions": instructions,
    "log messages": logging,
    "progress": progress,
    "roots": asked("roots/list", "get-roots-list", "roots"),
    "sampling": asked("sampling/createMessage", "trigger-sampling-request", "sample"),
    "elicitation": asked("elicitation/create", "trigger-elicitation-request", "elicit"),
    "tools that appear later": list_changed,
}


def probe(feature, client, names, calls):
    try:
        return FEATURES[feature](client, names, calls)
    except (TimeoutError, OSError, KeyError) as error:
        return f"failed: {error!r}"


def with_descriptors(direct, through):
    """What is expected through the proxy: a large text is the element of a descriptor."""
    if isinstance(direct, dict) and isinstance(through, dict):
        return {key: with_descriptors(value, through.get(key)) for key, value in direct.items()}
    if isinstance(direct, list) and isinstance(through, list) and len(direct) == len(through):
        return [with_descriptors(*both) for both in zip(direct, through)]
    is_shortened = isinstance(direct, str) and len(direct) > 8_000 and isinstance(through, str)
    return through if is_shortened and through.startswith("<fd_result ") else direct


def without_times(value):
    """The value without times of day, also those in texts that are base64: a server is called once directly and once through the proxy."""
    if isinstance(value, dict):
        return {key: without_times(text_of_blob(part) if key == "blob" and isinstance(part, str) else part) for key, part in value.items()}
    if isinstance(value, list):
        return [without_times(part) for part in value]
    return re.sub(r"\b\d{1,2}:\d\d:\d\d\b(\s[AP]M)?", "(time)", value) if isinstance(value, str) else value


def text_of_blob(blob):
    try:
        return base64.b64decode(blob).decode()
    except ValueError:
        return blob


def compare(feature, direct, through):
    direct, through = without_times(direct), without_times(through)
    if direct is None:
        return "none"
    if feature == "instructions":
        return "same" if direct.strip() in (through or "") else f"differs: {through!r}"
    if isinstance(direct, str) and direct.startswith("failed: "):
        return f"fails directly: {direct}"
    if direct == through:
        return "same"
    if with_descriptors(direct, through) == through:
        return "same, except that large texts are descriptors"
    return f"differs: {json.dumps(direct, sort_keys=True)[:2000]}\n  through: {json.dumps(through, sort_keys=True)[:2000]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dormouse", required=True)
    parser.add_argument("--calls")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    calls = json.load(open(args.calls, encoding="utf-8")) if args.calls else []
    direct, through = Client(args.command), Client([args.dormouse, "mcp", "--", *args.command])
    names = set(direct.tools())
    OURS.update(set(through.tools()) - names)
    verdicts = {}
    for feature in FEATURES:
        expected = probe(feature, direct, names, calls)
        found = None if expected is None else probe(feature, through, names, calls)
        verdicts[feature] = compare(feature, expected, found)
    direct.close()
    through.close()
    if args.json:
        print(json.dumps({feature: verdicts[feature] for feature in FEATURES}))
    else:
        for feature in FEATURES:
            print(f"{feature}: {verdicts[feature]}")
    sys.exit(any(verdict != "none" and not verdict.startswith("same") for verdict in verdicts.values()))


if __name__ == "__main__":
    main()
