"""Reads a file through `dormouse mcp`, with the official Python client, over a pipe or over HTTP: the output of a tool becomes a descriptor, which is read page by page."""

import asyncio
import sys
import time
import xml.etree.ElementTree as ElementTree
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def connected(server):
    if server[0].startswith("http://"):
        async with streamable_http_client(server[0]) as (read, write):
            yield read, write
    else:
        async with stdio_client(StdioServerParameters(command=server[0], args=server[1:])) as (read, write):
            yield read, write


async def call(session, tool, **arguments):
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text[:500]
    return ElementTree.fromstring(result.content[0].text)


async def main(path, server):
    with open(path, encoding="utf-8", newline="") as file:
        original = file.read()
    async with connected(server) as streams, ClientSession(*streams) as session:
        begun = await session.initialize()
        assert "read_fd" in begun.instructions
        names = [tool.name for tool in (await session.list_tools()).tools]
        assert {"read_text_file", "read_fd", "search_fd"} <= set(names), names
        started = time.monotonic()
        preview = await call(session, "read_text_file", path=path)
        fd, pages = preview.get("fd"), int(preview.get("pages"))
        read = [(await call(session, "read_fd", fd=fd, page=page)).text for page in range(1, pages + 1)]
        seconds = time.monotonic() - started
        assert "".join(read) == original, "the pages are not the file"
        side_by_side = await asyncio.gather(*(call(session, "read_fd", fd=fd, page=1) for _ in range(20)))
        assert all(answer.text == read[0] for answer in side_by_side)
        resources = (await session.list_resources()).resources
        assert str(resources[0].uri).startswith("fd://1"), resources
        print(f"python client, {begun.protocol_version}: {len(original)} characters in {pages} pages, {seconds:.1f} s")


asyncio.run(main(sys.argv[1], sys.argv[2:]))
