// The official TypeScript client, which validates structured content against the schema of the server: validating_client.mjs COMMAND…
import assert from "node:assert";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "validating", version: "1" });
await client.connect(new StdioClientTransport({ command, args }));
// The client validates only the tools that it has listed.
await client.listTools();
const small = await client.callTool({ name: "tree", arguments: {} });
assert.equal(small.structuredContent.tree.name, "root");
const large = await client.callTool({ name: "large_tree", arguments: {} });
assert.match(large.structuredContent.dormouse_text, /^<fd_result fd=/);
assert.equal(large.content[0].text, large.structuredContent.dormouse_text);
const impolite = await client.callTool({ name: "impolite", arguments: {} });
assert.equal(impolite.structuredContent, undefined);
await client.close();
console.log("the TypeScript client accepts a whole result and a descriptor");
