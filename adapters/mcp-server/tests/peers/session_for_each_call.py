"""LangChain's client has a session for each call: `session_for_each_call.py URL COMMAND…` reads what a call returned in later sessions, over HTTP and over a pipe."""

import asyncio
import re
import sys
import xml.etree.ElementTree as ElementTree

from langchain_mcp_adapters.client import MultiServerMCPClient

LINES = 5_000


def texts(answer):
    """The texts of an answer, whose form depends on the version of LangChain."""
    if isinstance(answer, str):
        return [answer]
    return [block if isinstance(block, str) else block["text"] for block in answer]


async def read_back(kind, connection):
    client = MultiServerMCPClient({"s": connection})
    tools = {tool.name: tool for tool in await client.get_tools()}
    preview = texts(await tools["large"].ainvoke({"text": "a line"}))
    kept = re.search(r"kept-\w+", "\n".join(preview)).group()
    pages = int(ElementTree.fromstring(preview[0]).get("pages"))
    read = ""
    for page in range(1, pages + 1):
        answer = texts(await tools["read_fd"].ainvoke({"fd": kept, "page": page}))
        read += ElementTree.fromstring(answer[0]).text
    assert read == "".join(f"a line {number}\n" for number in range(LINES)), read[:200]
    found = texts(await tools["search_fd"].ainvoke({"fd": kept, "query": "a line 4321"}))
    assert 'total="1"' in found[0] or "4321" in found[0], found
    try:
        unknown = "\n".join(texts(await tools["read_fd"].ainvoke({"fd": "fd:1", "page": 1})))
    except Exception as error:  # the adapters raise what a tool answers with isError
        unknown = str(error)
    assert "begins with kept-" in unknown, unknown
    print(f"langchain-mcp-adapters, {kind}: {pages} pages, each in a session of its own")


async def main(url, command):
    await read_back("HTTP", {"transport": "streamable_http", "url": url})
    await read_back("a pipe", {"transport": "stdio", "command": command[0], "args": command[1:]})


asyncio.run(main(sys.argv[1], sys.argv[2:]))
