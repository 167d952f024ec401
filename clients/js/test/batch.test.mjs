/** A replay as one list, the state of a connection for pages, and a topic's past page by page. */

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
  class BatchSocket {
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
  const fabric = connect({ endpoints: "http://r/endpoints.json", WebSocket: BatchSocket, token: "T", debug: (line) => lines.push(line) });
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

/** A page whose `history` after P1 is answered by `answers`, by host. Returns the asked hosts, in order, and the result. */
async function askedWhere(answers, { isOpen = true } = {}) {
  const asked = [];
  mock.method(globalThis, "fetch", async (url) => {
    const { host, pathname } = new URL(url);
    if (pathname === "/endpoints.json") {
      const gateways = isOpen ? [{ websocket_url: "wss://gateway/websocket", weight: 1 }] : [];
      return Response.json({ region: "r", gateways, alternates: [] });
    }
    asked.push(host);
    return answers[host]();
  });
  class FailoverSocket {
    constructor() {
      setImmediate(() => this.onopen());
    }
    send() {}
    close() {}
  }
  const fabric = connect({ endpoints: ["http://oregon/endpoints.json", "http://dublin/endpoints.json"], WebSocket: FailoverSocket });
  const opened = new Promise((resolve) => fabric.on("state", ({ state }) => state === (isOpen ? "open" : "waiting") && resolve()));
  fabric.subscribe("t");
  await opened;
  const came = await fabric.history("t", { after: "P1" }).then(
    ({ messages, position }) => [messages.map(({ body }) => body), position],
    ({ code, topic }) => [code, topic],
  );
  fabric.close();
  mock.restoreAll();
  return [asked, came];
}

const page = (body) => () => Response.json({ topic: "t", recovered: true, more: false, position: "P2", messages: [message(body, null)] });
const refusal = (code, temporary, status) => () => Response.json({ type: "error", code, reason: "no", temporary }, { status });
const gone = () => Promise.reject(new TypeError("Failed to fetch"));
const elsewhere = () => new Response("<!doctype html>", { status: 404 });

test("where a gateway can't say what came after a position, frontdesks are asked", async () => {
  for (const gateway of [gone, elsewhere, refusal(113, true, 503), refusal(111, true, 429)])
    assert.deepEqual(await askedWhere({ gateway, oregon: page(1) }), [["gateway", "oregon"], [[1], "P2"]]);
  const oregon = () => Response.json({ error: { reason: "unavailable", detail: "no gateway answers" } }, { status: 503 });
  assert.deepEqual(await askedWhere({ gateway: gone, oregon, dublin: page(2) }), [["gateway", "oregon", "dublin"], [[2], "P2"]]);
});

test("so they are where no gateway is connected", async () => {
  assert.deepEqual(await askedWhere({ oregon: page(1) }, { isOpen: false }), [["oregon"], [[1], "P2"]]);
  assert.deepEqual(await askedWhere({ oregon: gone, dublin: elsewhere }, { isOpen: false }), [["oregon", "dublin"], [100, "t"]]);
});

test("what a gateway refuses for good nobody else is asked, and what nobody can say is the gateway's refusal", async () => {
  assert.deepEqual(await askedWhere({ gateway: refusal(112, false, 400) }), [["gateway"], [112, "t"]]);
  const answers = { gateway: refusal(113, true, 503), oregon: gone, dublin: gone };
  assert.deepEqual(await askedWhere(answers), [["gateway", "oregon", "dublin"], [113, "t"]]);
});
