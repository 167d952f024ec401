/** Prints a script for a page: React 19 in its strict mode, and components that follow topics. */

import { fileURLToPath } from "node:url";

import { buildSync } from "esbuild";

const PAGE = `
import { StrictMode, createElement as h, useState } from "react";
import { createRoot } from "react-dom/client";
import { connect } from "../src/index.ts";
import { useConnection, useTopic } from "../src/react.ts";

const sentVerbs = [];
class Counting extends WebSocket {
  send(text) {
    sentVerbs.push(JSON.parse(text));
    super.send(text);
  }
}
const fabric = connect({ endpoints: "/endpoints.json", share: false, WebSocket: Counting });

function News({ topic }) {
  const { messages, isServed, error } = useTopic(fabric, topic, { rewind: 5, keep: 3 });
  return h("p", { id: "news" }, [topic, isServed, error?.code ?? "", ...messages.map(({ body }) => body.n)].join(" "));
}

function Page() {
  const [topic, choose] = useState("news.world");
  window.choose = choose;
  return h("div", null, h("p", { id: "state" }, useConnection(fabric).state), topic && h(News, { topic }));
}

window.sentVerbs = sentVerbs;
const root = document.body.appendChild(document.createElement("div"));
createRoot(root).render(h(StrictMode, null, h(Page)));
`;

const { outputFiles } = buildSync({
  stdin: { contents: PAGE, resolveDir: fileURLToPath(new URL(".", import.meta.url)), loader: "js" },
  bundle: true,
  write: false,
  format: "iife",
  target: "es2022",
  define: { "process.env.NODE_ENV": '"development"' },
});
process.stdout.write(outputFiles[0].text);
