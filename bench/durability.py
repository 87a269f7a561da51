#!/usr/bin/env python3
"""Measures the cost of durability: runs the binary `durability`, and LangGraph's SQLite saver on the same conversation. See
CONTRIBUTING.md."""

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEERS = ["langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2"]


def measure(turns, message_bytes):
    """Measures the disk space that the saver uses. Runs inside of its environment."""
    from typing import Annotated, TypedDict

    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages

    class State(TypedDict):
        messages: Annotated[list, add_messages]

    def text(number):
        return (f"{number} " + "x" * message_bytes)[:message_bytes]

    graph = StateGraph(State)
    graph.add_node("model", lambda state: {"messages": [AIMessage(content=text(len(state["messages"])))]})
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(os.path.join(folder, "checkpoints.db"), check_same_thread=False)
        app = graph.compile(checkpointer=SqliteSaver(connection))
        began = time.perf_counter()
        for turn in range(turns):
            user_message = {"messages": [HumanMessage(content=text(2 * turn))]}
            app.invoke(user_message, {"configurable": {"thread_id": "1"}})
        took = time.perf_counter() - began
        connection.commit()
        connection.close()
        disk = sum(entry.stat().st_size for entry in Path(folder).iterdir())
    conversation_bytes = 2 * turns * message_bytes
    print(f"langgraph, {turns} turns of {2 * message_bytes} bytes: conversation {conversation_bytes} bytes, database {disk}")
    print(f"database: {disk / conversation_bytes:.1f}x the conversation; {took:.1f} s")


def peer_python():
    """The interpreter of an environment with LangGraph, which the first run creates."""
    cache = Path(os.environ.get("DORMOUSE_BENCH") or Path.home() / ".cache" / "dormouse-bench")
    python = cache / "langgraph" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", cache / "langgraph"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS], check=True)
    return python


def main():
    root = Path(__file__).resolve().parent.parent
    binary = ["cargo", "run", "--quiet", "--release", "-p", "dormouse-bench", "--bin"]
    subprocess.run([*binary, "durability", "--", "all", *sys.argv[1:]], check=True, cwd=root)
    turns, size = 500, 1000
    source = (root / "bench/src/bin/durability/conversation.rs").read_text()
    assert re.search(rf"TURNS: usize = {turns};", source) and re.search(r"MESSAGE_BYTES: \[usize; 2\] = \[1_000,", source)
    subprocess.run([peer_python(), "-I", Path(__file__).resolve(), "measure", str(turns), str(size)], check=True)
    print("\nhibernate", flush=True)
    subprocess.run([*binary, "hibernate"], check=True, cwd=root)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
