"""The official Python client, which validates structured content against the schema of the server: validating_client.py COMMAND…"""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    parameters = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.list_tools()
        small = await session.call_tool("tree", {})
        large = await session.call_tool("large_tree", {})
        impolite = await session.call_tool("impolite", {})
        structured = lambda result: getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
        assert structured(small)["tree"]["name"] == "root", small
        assert structured(large)["dormouse_text"].startswith("<fd_result fd="), large
        assert structured(impolite) is None, impolite
        print("the Python client accepts a whole result and a descriptor")


asyncio.run(main())
