/** A replay as one list, what a page can learn of its connection, and a topic's past page by page. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { connect } from "../src/index.ts";
import { lineOf } from "../src/wire.ts";
import { Rig, idOf } from "./support.mjs";

const settled = () => new Promise((resolve) => setImmediate(resolve));
const message = (n, position) => ({ type: "message", topic: "t", id: idOf({ n, at: 1000 + n }), position, body: n });

/** A tab that follows t by lists, whose gateway has answered the subscription. */
function following(options = {}) {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const lists = [];
  const subscription = tab.follow("t", { rewind: 1000, onMessages: (messages) => lists.push(messages.map(({ body }) => body)), ...options });
  const [verb] = rig.sent();
  rig.subscribed(verb);
  const [ping] = rig.sent();
  return { rig, tab, lists, subscription, ping };
}

test("a replay of 1,000 comes as one list, and what is live as lists of one", async () => {
  const { rig, lists, subscription, ping } = following();
  assert.equal(ping.action, "ping");
  for (let n = 0; n < 1000; n += 1) rig.push(message(n, null));
  rig.push(message(1000, "p1"));
  assert.deepEqual([lists, subscription.position], [[], null]);
  rig.push({ type: "pong", ref: ping.ref });
  await settled();
  assert.deepEqual(lists, [Array.from({ length: 1001 }, (_, n) => n)]);
  assert.equal(subscription.position, "p1");
  rig.push(message(1001, "p2"));
  rig.push(message(1001, "p2"));
  assert.deepEqual(lists.slice(1), [[1001]]);
});

test("a topic without a past has no empty list", async () => {
  const { rig, lists, ping } = following();
  rig.push({ type: "pong", ref: ping.ref });
  await settled();
  assert.deepEqual(lists, []);
});

test("a replay that is cut off comes as one list with what the next connection brings", async () => {
  const { rig, lists, ping } = following();
  rig.push(message(1, "p1"));
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  const [again, next] = rig.asked();
  assert.deepEqual([again.position, next.action, next.ref === ping.ref], ["p1", "ping", false]);
  rig.subscribed(again, { recovered: true, position: "p1" });
  rig.push(message(2, "p2"));
  rig.push({ type: "pong", ref: next.ref });
  await settled();
  assert.deepEqual(lists, [[1, 2]]);
});

test("nothing is handed over to who has left before the list was whole", async () => {
  const { rig, lists, subscription, ping } = following();
  rig.push(message(1, "p1"));
  subscription.unsubscribe();
  rig.push({ type: "pong", ref: ping.ref });
  await settled();
  assert.deepEqual(lists, []);
});

test("messages, repeats and gaps are counted", () => {
  const { rig, tab } = following({ onMessages: undefined, since: "p0" });
  rig.push(message(1, "p1"));
  rig.push(message(1, "p1"));
  assert.deepEqual(tab.counts, { messages: 1, repeats: 1, gaps: 1 });
});

test("a log has neither tokens nor bodies", () => {
  assert.equal(lineOf("says", { action: "login", token: "secret", ref: "l1" }), 'says {"action":"login","token":"…","ref":"l1"}');
  assert.equal(lineOf("hears", { type: "message", topic: "t", body: { text: "private" } }), 'hears {"type":"message","topic":"t","body":"…"}');
});

test("a page asks its gateway for what came after a position, logged in as it is, and may count and log", async () => {
  const asked = [];
  const answers = [
    Response.json({ region: "r", gateways: [{ websocket_url: "wss://g:8443/websocket", weight: 1 }], alternates: [] }),
    Response.json({ topic: "t", recovered: true, more: true, position: "P2", messages: [message(1, null)] }),
    Response.json({ type: "error", code: 112, reason: "not a position of this fabric", temporary: false }, { status: 400 }),
  ];
  mock.method(globalThis, "fetch", async (url, { headers }) => {
    asked.push([String(url), headers]);
    return answers.shift();
  });
  class Socket {
    constructor() {
      setImmediate(() => this.onopen());
    }
    send(text) {
      const { action, ref } = JSON.parse(text);
      if (action === "login") setImmediate(() => this.onmessage({ data: JSON.stringify({ type: "logged_in", ref, user: "42" }) }));
    }
    close() {}
  }
  const lines = [];
  const fabric = connect({ endpoints: "http://r/endpoints.json", WebSocket: Socket, token: "T", debug: (line) => lines.push(line) });
  await assert.rejects(fabric.history("t", { after: "P1" }), { code: 100, temporary: true });
  await new Promise((resolve) => fabric.on("login", resolve));
  const { messages, ...page } = await fabric.history("t", { after: "P1", limit: 1000 });
  assert.deepEqual([messages.map(({ body }) => body), page], [[1], { more: true, position: "P2", recovered: true }]);
  assert.deepEqual(asked.at(-1), ["https://g:8443/history?topic=t&after=P1&limit=1000", { Authorization: "Bearer T" }]);
  await assert.rejects(fabric.history("t", { after: "nonsense" }), { code: 112, temporary: false });
  assert.deepEqual(fabric.statistics, { connections: 1, losses: 0, messages: 0, repeats: 0, gaps: 0 });
  fabric.close();
  mock.restoreAll();
  assert.ok(lines.some((line) => line.startsWith("asked http://r/endpoints.json: 1 gateways")));
  assert.ok(lines.includes('says {"action":"login","token":"…","ref":"l1"}'));
  assert.ok(!lines.join().includes('"T"'));
});
