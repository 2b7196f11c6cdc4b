// The official client on the end of a pipe: it connects to the URL given, does what each line on
// stdin says ({"call": name, "args": {...}} or {"list": true}) and writes what came of it, a line
// each, and {"changed": true} whenever the server says that its list of tools has changed.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const client = new Client({ name: "host", version: "1" });
client.setNotificationHandler(ToolListChangedNotificationSchema, () => say({ changed: true }));
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const { call, args, list } = JSON.parse(line);
  try {
    if (list) {
      say({ tools: (await client.listTools()).tools.map((tool) => tool.name) });
    } else {
      say({ result: await client.callTool({ name: call, arguments: args }) });
    }
  } catch (err) {
    say({ error: String(err) });
  }
}
await client.close();
