// What the descriptor tools of a proxy cost with every request, as tokens of o200k: `count_tokens.mjs NODE_MODULES NAME LISTING`,
// where LISTING is a file of {instructions, tools}.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modules, name, path] = process.argv.slice(2);
const { encode } = await import(pathToFileURL(`${modules}/gpt-tokenizer/esm/encoding/o200k_base.js`));
const { instructions, tools } = JSON.parse(readFileSync(path, "utf8"));
const described = tools.map(({ name, description, inputSchema }) => JSON.stringify({ name, description, inputSchema })).join("\n");
const [inTools, inInstructions] = [encode(described).length, encode(instructions).length];
const bytes = Buffer.byteLength(described) + Buffer.byteLength(instructions);
console.log(`${name}: ${tools.length} tools, ${inTools} tokens of o200k, instructions ${inInstructions}, together ${inTools + inInstructions} (${bytes} bytes)`);
if (name === "lean" && inTools + inInstructions >= 600) {
    console.error("the lean set has to be below 600 tokens");
    process.exit(1);
}
