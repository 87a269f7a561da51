#!/usr/bin/env python3
"""Brings processes into every state in which they wait, and checks after a loss of power that they still are.

    states.py write  DORMOUSE NOTES FOLDER START      prints each number once the program has acknowledged its state
    states.py verify DORMOUSE NOTES FOLDER ACKED      prints `missing=N wrong=N` about the numbers below ACKED

The stores lie in FOLDER, whose disk may lose power. NOTES is a folder on a disk that keeps everything; it says which writer
began at which number. The state of a number is STATES[number % 16]. The program of each process is named after its state, its
number and its writer, so that an attempt that was cut off is told from the one that repeats it. Members of a swarm are forked by
one process and work at the same time; the call that each of them waits for names it.

A state counts as acknowledged as soon as the program prints the event of its last fact, while it still runs, or, for commands
that print nothing, when they exit with 0. `missing` counts what is absent or has lost its last facts, `wrong` what differs
otherwise. POWER_WRITERS is the number of writers on one store (5). POWER_NOSYNC names calls, such as
fsync,fdatasync, that do nothing and say that they succeeded: then something must be missing.
"""

import ctypes
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import time

STATES = ["held", "question", "asleep", "paused", "raised", "reopened", "compacting", "label"]
STATES += ["member"] * 8
WRITERS = int(os.environ.get("POWER_WRITERS", 5))
WAKE_MS = 2_208_988_800_000  # 2040-01-01, in milliseconds since 1970

PROGRAM = """
[model]
name = "m"
provider = "scripted"
script = "script.toml"
[tools]
enabled = ["ask_user", "wake_at", "fork"]
ask = ["note"]
[[tools.command]]
name = "note"
description = "Notes."
argv = ["echo", "noted {id}"]
access = "write"
parameters.id = { type = "string", description = "The id." }
[[tools.command]]
name = "look"
description = "Looks."
argv = ["echo", "looked at {id}"]
parameters.id = { type = "string", description = "The id." }
"""
LIMIT = '[budget]\noutput_tokens = 20\nat_limit = "pause"\n'
EXTRA = {"paused": LIMIT, "raised": LIMIT, "compacting": "[context]\nwindow = 400\ncompact_at = 0.5\nkeep_messages = 2\n"}

# The script looks at the last message only where a compaction takes the others away.
SCRIPT = """
[[capture]]
name = "wake"
pattern = '[0-9]+-[0-9]+-[0-9]+T[0-9:]+Z'
from = "input"
[[capture]]
name = "members"
pattern = 'member-[0-9]+-[0-9]+'
from = "input"
take = "all"
[[turn]]
when = { holds = "'swarm' in program", prompt = "^input", round = 0 }
calls_json = '[{"tool": "fork", "args": {"prompts": {{ members | tojson }} }}]'
[[turn]]
when = { holds = "'swarm' in program", round = 0 }
calls = [{ tool = "note", args = { id = "{{ prompt }}" } }]
[[turn]]
when = { holds = "'held' in program", round = 0 }
calls = [{ tool = "note", args = { id = "{{ program }}" } }]
[[turn]]
when = { holds = "'question' in program", round = 0 }
calls = [{ tool = "ask_user", args = { question = "{{ program }}?" } }]
[[turn]]
when = { holds = "'asleep' in program", round = 0 }
calls = [{ tool = "wake_at", args = { time = "{{ wake }}", note = "{{ program }}" } }]
[[turn]]
when = { holds = "'paused' in program or 'raised' in program", round = 0 }
text = "{{ program }} says at some length what it expects to see, so that its budget is used up."
calls = [{ tool = "look", args = { id = "{{ program }}" } }]
[[turn]]
when = { holds = "'compacting' in program", contains = "page 2 of" }
text = "{{ program }} is over"
[[turn]]
when = { holds = "'compacting' in program", contains = "page 1 of" }
text = "{% for i in range(40) %}{{ program }} thinks. {% endfor %}"
calls = [{ tool = "look", args = { id = "page 2 of {{ program }}" } }]
[[turn]]
when = { holds = "'compacting' in program", contains = "page 0 of" }
text = "{% for i in range(40) %}{{ program }} thinks. {% endfor %}"
calls = [{ tool = "look", args = { id = "page 1 of {{ program }}" } }]
[[turn]]
when.holds = "'compacting' in program"
text = "{% for i in range(40) %}{{ program }} thinks. {% endfor %}"
calls = [{ tool = "look", args = { id = "page 0 of {{ program }}" } }]
[[turn]]
text = "{{ program }} has heard {{ prompt }}"
"""

CALL = ["model_called", "model_replied"]
LOOK = [*CALL, "tool_called", "tool_returned"]
BUDGET = ["born", "turn_began", *LOOK, "budget_paused"]
# The facts of each state, as they are acknowledged.
FACTS = {
    "held": ["born", "turn_began", *CALL, "held"],
    "question": ["born", "turn_began", *CALL, "held"],
    "asleep": ["born", "turn_began", *CALL, "alarm_set", "tool_returned", *CALL, "turn_ended"],
    "paused": BUDGET,
    "raised": [*BUDGET, "budget_raised", "budget_unpaused"],
    "reopened": ["born", "turn_began", *CALL, "exited", "reopened", "message_queued", "turn_began", *CALL, "exited"],
    "member": ["born", *CALL, "held"],
    "compacting": ["born", "turn_began", *LOOK, *LOOK, "compacted", *LOOK, "compacted"],
}
# What may follow before the command ends.
AFTER = {"compacting": [*CALL, "exited"]}


def state_of(number):
    return STATES[number % len(STATES)]


def wake_ms(number):
    return WAKE_MS + 1000 * number


SYNCS = {
    "x86_64": {"fsync": 74, "fdatasync": 75, "sync_file_range": 277, "msync": 26},
    "aarch64": {"fsync": 82, "fdatasync": 83, "sync_file_range": 84, "msync": 227},
}


def take_syncs_away(names):
    """Lets the operating system answer these calls of this process, and of all below it, with 0, and do nothing."""
    numbers = [SYNCS[platform.machine()][name] for name in names]
    load_number, is_equal, answer = 0x20, 0x15, 0x06
    allow, answer_0 = 0x7FFF0000, 0x00050000
    code = [(load_number, 0, 0, 0)]
    code += [(is_equal, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    code += [(answer, 0, 0, allow), (answer, 0, 0, answer_0)]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in code))
    program = ctypes.create_string_buffer(struct.pack("<H6xQ", len(code), ctypes.addressof(filters)))
    prctl, no_new_privileges, set_seccomp, filter_mode = ctypes.CDLL(None).prctl, 38, 22, 2
    if prctl(no_new_privileges, 1, 0, 0, 0) or prctl(set_seccomp, filter_mode, program):
        sys.exit("this kernel has no seccomp filters")


class Notes:
    """Which writer began at which number."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "starts")
        self.starts = [int(line) for line in open(self.path)] if os.path.exists(self.path) else []

    def begin(self, start):
        with open(self.path, "a") as file:
            file.write(f"{start}\n")
        self.starts.append(start)
        return len(self.starts) - 1

    def writer_of(self, number):
        return max(writer for writer, start in enumerate(self.starts) if start <= number)

    def name(self, number):
        return f"{state_of(number)}-{number}-{self.writer_of(number)}"


class Writer:
    def __init__(self, dormouse, notes, folder, start):
        self.dormouse, self.number, self.notes = dormouse, start, notes
        self.writer = notes.begin(start)
        self.store = os.path.join(folder, f"store{self.writer // WRITERS}")
        # The store before was checked after its last writer.
        shutil.rmtree(os.path.join(folder, f"store{self.writer // WRITERS - 1}"), ignore_errors=True)
        with open(os.path.join(notes.folder, "script.toml"), "w") as file:
            file.write(SCRIPT)

    def acknowledge(self):
        print(self.number, flush=True)
        self.number += 1

    def at_fact(self, name, times=1):
        """Acknowledges the number at so many facts of this name."""
        seen = []

        def on_event(event):
            if event.get("fact") == name and event["event"] == "fact":
                seen.append(event)
                if len(seen) == times:
                    self.acknowledge()

        return on_event

    def at_held_calls(self):
        """Acknowledges each member whose call is held, in the order of their numbers."""
        held = set()

        def on_event(event):
            if event["event"] == "call_held":
                held.add(json.loads(event["args"])["id"])
            while f"member-{self.number}-{self.writer}" in held:
                self.acknowledge()

        return on_event

    def command(self, words, codes, on_event=None, acknowledges=0):
        end = self.number + acknowledges
        words = [self.dormouse, *words, "--store", self.store]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if on_event:
                on_event(json.loads(line))
        errors = process.stderr.read()
        if process.wait() not in codes or self.number != end:
            sys.exit(f"{words}: {process.returncode}, at {self.number}\n{errors}")

    def run(self, state, codes, on_event=None, acknowledges=0, more=""):
        path = os.path.join(self.notes.folder, f"{state}-{self.number}-{self.writer}.toml")
        with open(path, "w") as file:
            file.write(PROGRAM + EXTRA.get(state, ""))
        wake = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wake_ms(self.number) // 1000))
        words = ["run", path, "--input", f"input {wake}{more}", "--allow-run=echo", "--json"]
        self.command(words, codes, on_event, acknowledges)
        os.remove(path)

    def pid(self, state):
        name = f"{state}-{self.number}-{self.writer}"
        return next(str(row["pid"]) for row in lines(self.dormouse, "ps", self.store) if row["program"] == name)

    def step(self):
        state = state_of(self.number)
        if state == "label":
            budget = ["--per", "month", "--output-tokens", str(1000 + self.number)]
            self.command(["label", "set", f"power={self.number}", *budget], [0])
            self.acknowledge()
        elif state == "raised":
            self.run(state, [4])
            self.command(["raise", self.pid(state), "--output-tokens", str(100 + self.number)], [0])
            self.acknowledge()
        elif state == "reopened":
            self.run(state, [0])
            words = ["send", self.pid(state), f"again {self.number}", "--allow-run=echo", "--json"]
            self.command(words, [0], self.at_fact("exited"), 1)
        elif state == "member":
            count = len(STATES) - self.number % len(STATES)
            names = [f" member-{self.number + at}-{self.writer}" for at in range(count)]
            self.run("swarm", [4], self.at_held_calls(), count, "".join(names))
        else:
            last = {"asleep": "turn_ended", "paused": "budget_paused", "compacting": "compacted"}.get(state, "held")
            codes = {"asleep": [5], "compacting": [0]}.get(state, [4])
            self.run(state, codes, self.at_fact(last, FACTS[state].count(last)), 1)


def lines(dormouse, command, store, *more):
    ran = subprocess.run([dormouse, *command.split(), *more, "--json", "--store", store], capture_output=True, text=True)
    if ran.returncode:
        raise OSError(f"{command} {more}: {ran.returncode} {ran.stderr.strip()}")
    return [json.loads(line) for line in ran.stdout.splitlines()]


class Verifier:
    """Compares one store with what was acknowledged."""

    def __init__(self, dormouse, notes, store):
        self.dormouse, self.notes, self.store = dormouse, notes, store
        self.missing, self.wrong = [], []

    def read(self, command, *more):
        return lines(self.dormouse, command, self.store, *more)

    def check(self, numbers):
        ran = subprocess.run([self.dormouse, "fsck", "--store", self.store], capture_output=True, text=True)
        print(f"fsck {ran.returncode}: {ran.stdout.strip()} {ran.stderr.strip()}")
        if ran.returncode:
            self.wrong.append("fsck")
        try:
            self.read_all()
        except OSError as error:
            print(f"{self.store} cannot be read: {error}")
            self.missing += numbers
            return
        for number in numbers:
            try:
                why = self.check_number(number, self.notes.name(number))
                if why:
                    print(f"missing {number}: {why}")
                    self.missing.append(number)
            except (OSError, LookupError, AssertionError) as error:
                print(f"wrong {number}: {error!r}")
                self.wrong.append(number)

    def read_all(self):
        listed = self.read("ps")
        self.pending = {call["pid"]: call for call in self.read("pending")}
        self.alarms = {alarm["pid"]: alarm for alarm in self.read("alarms")}
        self.labels = {label["label"]: label for label in self.read("label list")}
        self.rows = {row["program"]: row for row in listed if not row["program"].startswith("swarm")}
        # All members of a swarm have one program. The held call tells which one it is.
        for row in listed:
            call = self.pending.get(row["pid"])
            if call and row["program"].startswith("swarm"):
                self.rows[json.loads(call["args"])["id"]] = row

    def check_number(self, number, name):
        """Returns what is missing, if something is. An assertion fails if something is wrong."""
        state = state_of(number)
        if state == "label":
            return self.label(number)
        row = self.rows.get(name)
        if row is None:
            return f"no process {name}"
        log = self.read("log", str(row["pid"]))
        facts, wanted = [fact["name"] for fact in log], FACTS[state]
        if len(facts) < len(wanted) and facts == wanted[: len(facts)]:
            return f"{name} has lost {wanted[len(facts):]}"
        more = facts[len(wanted) :]
        assert facts[: len(wanted)] == wanted and more == AFTER.get(state, [])[: len(more)], facts
        assert [fact["fact"] for fact in log] == list(range(len(log))) and row["facts"] == len(log) - 1, (row, log)
        return getattr(self, state)(number, name, row, log)

    def label(self, number):
        label = self.labels.get(f"power={number}")
        if label is None:
            return f"no budget of the label power={number}"
        limits = {"output_tokens": {"used": "0", "limit": str(1000 + number)}}
        assert label["limits"] == limits and label["per"] == "month", label
        return None

    def messages(self, row):
        listed = self.read("messages", str(row["pid"]), "--all")
        assert [line["message"] for line in listed] == list(range(1, len(listed) + 1)), listed
        return [block.get("text", "") for line in listed for block in line["blocks"] if block["type"] != "tool_use"]

    def held(self, number, name, row, log):
        call = self.pending[row["pid"]]
        assert call["tool"] == "note" and json.loads(call["args"]) == {"id": name}, call

    member = held

    def question(self, number, name, row, log):
        call = self.pending[row["pid"]]
        assert call["tool"] == "ask_user" and call["question"]["text"] == f"{name}?", call

    def asleep(self, number, name, row, log):
        alarm = self.alarms[row["pid"]]
        assert alarm["note"] == name and alarm["due_ms"] == row["next_alarm_ms"] == wake_ms(number), (alarm, row)

    def paused(self, number, name, row, log):
        assert row["status"] == "paused" and row["paused"]["limit"] == "20", row
        assert self.messages(row)[-1].strip() == f"looked at {name}", self.messages(row)

    def raised(self, number, name, row, log):
        assert "paused" not in row and log[-2]["summary"] == f"output_tokens {100 + number}", (row, log)

    def reopened(self, number, name, row, log):
        assert row["status"] == "done" and row["reopenings"] == 1, row
        first, reply, second, last = self.messages(row)
        assert (second, last) == (f"again {number}", f"{name} has heard again {number}"), (second, last)
        assert reply == f"{name} has heard {first}", (first, reply)

    def compacting(self, number, name, row, log):
        texts = self.messages(row)
        thought = f"{name} thinks. " * 40
        pages = [text for page in range(3) for text in (thought, f"looked at page {page} of {name}\n")]
        ends = [f"{name} is over"] if "model_replied" in [fact["name"] for fact in log[len(FACTS["compacting"]) :]] else []
        assert texts[1:] == pages + ends, texts
        present = self.read("messages", str(row["pid"]))
        assert 'fd="history:2"' in present[0]["blocks"][0]["text"], present[0]


def verify(dormouse, notes, folder, acked):
    """Checks the store of the last writer. Those of earlier writers were checked before, and nothing has written them since."""
    last = len(notes.starts) - 1
    first = notes.starts[last // WRITERS * WRITERS]
    found = Verifier(dormouse, notes, os.path.join(folder, f"store{last // WRITERS}"))
    if first < acked:
        found.check(range(first, acked))
    print(f"missing={len(found.missing)} wrong={len(found.wrong)}")


def main(verb, dormouse, notes, folder, number):
    notes = Notes(notes)
    if verb == "verify":
        return verify(dormouse, notes, folder, int(number))
    if os.environ.get("POWER_NOSYNC"):
        take_syncs_away(os.environ["POWER_NOSYNC"].split(","))
    writer = Writer(dormouse, notes, folder, int(number))
    while True:
        writer.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
