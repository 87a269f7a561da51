"""Twenty sessions of `dormouse mcp` over HTTP in front of desktop-commander, whose shells outlive a call: nothing of a session is seen by another one."""

import asyncio
import re
import sys
import time
from contextlib import AsyncExitStack

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

SESSIONS = 20


async def call(session, tool, **arguments):
    result = await session.call_tool(tool, arguments)
    text = "\n".join(block.text for block in result.content if block.type == "text")
    assert not result.isError, text[:500]
    return text


async def begin(stack, url):
    read, write, _ = await stack.enter_async_context(streamablehttp_client(url, timeout=120))
    session = await stack.enter_async_context(ClientSession(read, write))
    await session.initialize()
    return session


async def main(url):
    async with AsyncExitStack() as stack:
        sessions = [await begin(stack, url) for _ in range(SESSIONS)]
        started = time.monotonic()
        shells = []
        for number, session in enumerate(sessions):
            # A shell that stays, with a secret in its environment and on its screen.
            text = await call(session, "start_process", command=f"SECRET=secret-{number}; echo $SECRET; exec cat", timeout_ms=2000)
            shells.append(re.search(r"PID (\d+)", text).group(1))
        seconds = time.monotonic() - started
        for number, session in enumerate(sessions):
            listed = await call(session, "list_sessions")
            for other, shell in enumerate(shells):
                assert (shell in listed) == (other == number), f"session {number} lists shell {shell}: {listed}"
            foreign = shells[(number + 1) % SESSIONS]
            seen = await session.call_tool("read_process_output", {"pid": int(foreign), "timeout_ms": 100})
            text = " ".join(block.text for block in seen.content)
            assert f"secret-{(number + 1) % SESSIONS}" not in text, text
        fresh = await begin(stack, url)
        listed = await call(fresh, "list_sessions")
        assert not any(shell in listed for shell in shells), listed
        print(f"{SESSIONS} sessions of desktop-commander, {seconds:.0f} s for a shell in each: none sees a shell of another one")


asyncio.run(main(sys.argv[1]))
