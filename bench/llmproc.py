#!/usr/bin/env python3
"""The same work in llmproc and in Dormouse, in one run: open a descriptor, read its last page, fork. See CONTRIBUTING.md."""

import asyncio
import copy
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PEER = "llmproc==0.9.5"
SIZES = [1_000_000, 10_000_000]
HOLDINGS = ["100x1000000", "10000x1000"]
LINE = "the quick brown fox jumps over the lazy dog, and then it goes to sleep at noon.\n"
CREATIONS = 3
READS = 101
FORKS = 3


def median_ns(runs, run):
    taken = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        run()
        taken.append(time.perf_counter_ns() - start)
    return int(statistics.median(taken))


def measure(chars):
    """Measures llmproc. Runs inside of its environment."""
    from llmproc.file_descriptors import FileDescriptorManager

    text = LINE * (chars // len(LINE))
    manager = FileDescriptorManager(default_page_size=4000, max_direct_output_chars=8000)
    create = median_ns(CREATIONS, lambda: manager.create_fd_from_tool_result(text, "bench"))
    entry = manager.file_descriptors["fd:1"]
    pages = entry["total_pages"]
    read = median_ns(READS, lambda: manager.read_fd_content("fd:1", mode="page", start=pages, count=1))
    return {"chars": chars, "lines": entry["total_lines"], "pages": pages, "create_ns": create, "read_ns": read}


async def measure_fork(holding):
    """Measures a fork of a process in llmproc. `holding` is the number of its descriptors and their size in bytes."""
    from llmproc import LLMProgram
    from llmproc.config.schema import FileDescriptorConfig

    count, size = map(int, holding.split("x"))
    # No model is called, but llmproc requires a key.
    os.environ["ANTHROPIC_API_KEY"] = "none"
    descriptors = FileDescriptorConfig(enabled=True)
    program = LLMProgram(
        model_name="m", provider="anthropic", system_prompt="You measure.", tools=["read_fd"], file_descriptor=descriptors
    )
    process = await program.start()
    manager = process.fd_manager
    manager.create_fd_content((LINE * (size // len(LINE) + 1))[:size])
    # Copies of one descriptor: creating each through the API would take minutes.
    entry = manager.file_descriptors["fd:1"]
    manager.file_descriptors = {f"fd:{number}": copy.deepcopy(entry) for number in range(1, count + 1)}
    taken = []
    for _ in range(FORKS):
        start = time.perf_counter_ns()
        child = await process._fork_process()
        taken.append(time.perf_counter_ns() - start)
        assert len(child.fd_manager.file_descriptors) == count, "the child has all descriptors of its parent"
    return {"count": count, "bytes": size, "fork_ns": int(statistics.median(taken))}


def peer_python():
    """The interpreter of an environment with llmproc, which the first run creates."""
    cache = Path(os.environ.get("DORMOUSE_BENCH") or Path.home() / ".cache" / "dormouse-bench")
    python = cache / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", cache / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER], check=True)
    return python


def figures(command, what):
    root = Path(__file__).resolve().parent.parent
    output = subprocess.run([*command, *map(str, what)], check=True, stdout=subprocess.PIPE, cwd=root).stdout
    return json.loads(output)


def cargo(program):
    return ["cargo", "run", "--quiet", "--release", "-p", "dormouse-bench", "--bin", program, "--"]


def main():
    # Isolated (-I), so that `import llmproc` does not find this file.
    peer = [peer_python(), "-I", Path(__file__).resolve()]
    theirs, ours = figures([*peer, "measure"], SIZES), figures(cargo("descriptors"), SIZES)
    print(f"{'':24} {PEER:>16} {'dormouse':>12} {'ratio':>10}")
    for their, our in zip(theirs, ours, strict=True):
        same = [their[key] == our[key] for key in ("chars", "lines", "pages")]
        assert all(same), f"not the same work: {their} {our}"
        for key, what in (("create_ns", "create"), ("read_ns", "read the last page")):
            label = f"{their['chars'] // 1_000_000:>3} MB {what}"
            print(f"{label:24} {their[key] / 1e3:>13,.1f} µs {our[key] / 1e3:>9,.1f} µs {their[key] / our[key]:>9,.0f}x")
    theirs, ours = figures([*peer, "fork"], HOLDINGS), figures(cargo("fork_image"), HOLDINGS)
    for their, our in zip(theirs, ours, strict=True):
        assert all(their[key] == our[key] for key in ("count", "bytes")), f"not the same work: {their} {our}"
        label = f"fork {our['count']:,} x {our['bytes'] // 1000:,} kB"
        ratio = their["fork_ns"] / our["fork_ns"]
        print(f"{label:24} {their['fork_ns'] / 1e3:>13,.1f} µs {our['fork_ns'] / 1e3:>9,.1f} µs {ratio:>9,.0f}x")
        copied, ratio = our["copy_ns"], our["copy_ns"] / our["fork_ns"]
        print(f"{'  a copy of the bytes':24} {copied / 1e3:>13,.1f} µs {our['fork_ns'] / 1e3:>9,.1f} µs {ratio:>9,.0f}x")
    print(f"the second holding beside the first: {ours[1]['fork_ns'] / ours[0]['fork_ns']:.1f}x here")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps([measure(int(size)) for size in sys.argv[2:]]))
    elif sys.argv[1:2] == ["fork"]:
        print(json.dumps([asyncio.run(measure_fork(holding)) for holding in sys.argv[2:]]))
    else:
        main()
