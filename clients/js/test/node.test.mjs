/** Without a browser: nothing is done where pages are rendered, and a reader in Node is one like any other. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { mock, test } from "node:test";

import { connect } from "../src/index.ts";
import { idOf } from "./support.mjs";

test("where a page is rendered nothing is asked, nothing waits, and nothing fails", async () => {
  const timers = ["setTimeout", "setInterval", "fetch"].map((name) => mock.method(globalThis, name));
  const fabric = connect({ endpoints: "/endpoints.json", token: () => "T" });
  const off = fabric.on("state", () => assert.fail("no state is reported"));
  const subscription = fabric.subscribe("news.world", { rewind: 5, onMessage: () => assert.fail("no message comes") });
  assert.deepEqual([fabric.state, subscription.position], [{ state: "idle" }, null]);
  await subscription.unsubscribe();
  // Not awaited: that must end no server.
  fabric.login("T");
  fabric.refresh();
  for (const asked of [() => fabric.history("news.world"), () => fabric.login("T"), () => fabric.ack({ topic: "user.42", id: "i" })]) {
    await assert.rejects(asked(), { code: 0, message: /there is no browser here/ });
  }
  off();
  fabric.close();
  assert.deepEqual(timers.map((timer) => timer.mock.callCount()), [0, 0, 0]);
  mock.restoreAll();
});

/** A gateway on which topic news.world has one message. */
class RecordingSocket {
  static sockets = [];
  constructor(url) {
    RecordingSocket.sockets.push(this);
    this.url = url;
    setImmediate(() => this.onopen());
  }
  send(text) {
    const { action, topic, ref } = JSON.parse(text);
    const tell = (push) => setImmediate(() => this.onmessage?.({ data: JSON.stringify(push) }));
    if (action !== "subscribe") return;
    tell({ type: "subscribed", ref, topic, recovered: false, position: "p0" });
    tell({ type: "message", topic, id: idOf({ n: 1, at: 1000 }), position: "p1", body: { headline: "Hello" } });
  }
  close() {
    this.isClosed = true;
  }
}

test("a reader in Node, with a WebSocket that it was given, has its messages, and ends when it is closed", async () => {
  const server = createServer((_, response) => {
    response.end(JSON.stringify({ region: "r", gateways: [{ websocket_url: "ws://g/websocket", sockjs_url: "http://g/sockjs", weight: 1 }], alternates: [] }));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const fabric = connect({ endpoints: `http://127.0.0.1:${server.address().port}/endpoints.json`, WebSocket: RecordingSocket });
  const message = await new Promise((resolve) => fabric.subscribe("news.world", { onMessage: resolve }));
  assert.deepEqual([message.body.headline, fabric.state.state, fabric.state.tab, fabric.state.transport], ["Hello", "open", "alone", "websocket"]);
  fabric.close();
  assert.deepEqual(RecordingSocket.sockets.map(({ url, isClosed }) => [url, isClosed]), [["ws://g/websocket", true]]);
  await new Promise((resolve) => server.close(resolve));
});
