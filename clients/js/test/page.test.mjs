/** A whole page without a browser: `connect()` with a document, locks and channels that the test makes. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { connect } from "../src/index.ts";

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** The environment of a page in its browser. Locks are granted soon, or refused; who leads is another tab. */
class PageWorld {
  constructor({ locks = null } = {}) {
    this.channels = [];
    this.sockets = [];
    this.stolen = 0;
    const world = this;
    const request = async (name, options, whenHeld) => {
      await null;
      if (locks === "refused") throw new DOMException("sandboxed", "SecurityError");
      if (options.steal) world.stolen += 1;
      else if (name === this.lead) return new Promise(() => {});
      return whenHeld();
    };
    class FakeChannel {
      constructor() {
        world.channels.push(this);
      }
      postMessage() {}
      close() {
        this.onmessage = null;
      }
    }
    class FakeSocket {
      constructor() {
        world.sockets.push(this);
      }
      send() {}
      close() {
        this.isClosed = true;
      }
    }
    this.document = Object.assign(new EventTarget(), { baseURI: "http://page/", hidden: false });
    const globals = { document: this.document, window: new EventTarget(), navigator: locks ? { locks: { request } } : {} };
    this.lead = "newsfabric http://r/endpoints.json websocket";
    const answer = { region: "r", gateways: [{ websocket_url: "ws://g/websocket", weight: 1 }], alternates: [] };
    Object.assign(globals, { fetch: async () => Response.json(answer), WebSocket: FakeSocket, BroadcastChannel: FakeChannel });
    for (const [name, value] of Object.entries(globals)) Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }

  connect(options = {}) {
    const fabric = connect({ endpoints: "http://r/endpoints.json", transports: ["websocket"], ...options });
    fabrics.push(fabric);
    return fabric;
  }

  /** Each other tab's note reaches this one. */
  note(note) {
    for (const { onmessage } of this.channels) onmessage?.({ data: { to: "tabs", note, from: "other" } });
  }
}

/** The time that `judgeAfter` sees. */
let time = 0;
const fabrics = [];
test.beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  mock.method(performance, "now", () => time);
});
test.afterEach(() => {
  for (const fabric of fabrics.splice(0)) fabric.close();
  mock.timers.reset();
  mock.restoreAll();
});

/** Timers run as time goes. */
async function pass(ms) {
  for (let n = 0; n < ms; n += 50) {
    time += 50;
    mock.timers.tick(50);
  }
  await settled();
}

/** Run nothing for `ms`, then the timers, before anything else. */
async function block(ms) {
  time += ms;
  mock.timers.tick(ms);
  await settled();
}

test("a state handler that closes the page is the last one that is called, but with that", async () => {
  const fabric = new PageWorld().connect();
  const events = [];
  fabric.on("state", ({ state }) => {
    events.push(["first", state]);
    fabric.close();
  });
  fabric.on("state", ({ state }) => events.push(["second", state]));
  await settled();
  assert.deepEqual(events, [["first", "finding"], ["first", "stopped"], ["second", "stopped"]]);
});

test("a handler that is taken off by another one isn't called any more, and one that is put on not yet", async () => {
  const fabric = new PageWorld().connect();
  const events = [];
  fabric.on("state", () => {
    events.push("first");
    off();
    fabric.on("state", () => events.push("new"));
  });
  const off = fabric.on("state", () => events.push("second"));
  await Promise.resolve();
  assert.deepEqual(events, ["first"]);
});

test("a closed page has no socket, no timer and no answer to come", async () => {
  const world = new PageWorld();
  const fabric = world.connect();
  await settled();
  await settled();
  assert.equal(world.sockets.length, 1);
  fabric.close();
  assert.deepEqual([world.sockets[0].isClosed, world.sockets[0].onmessage], [true, null]);
  const events = [];
  for (const event of ["state", "login", "error"]) fabric.on(event, () => events.push(event));
  await assert.rejects(fabric.history("news.world"), { code: 0 });
  await assert.rejects(fabric.login("T"), { code: 0 });
  await pass(60_000);
  world.document.dispatchEvent(new Event("visibilitychange"));
  await settled();
  assert.deepEqual([events, world.sockets.length], [[], 1]);
});

test("a login whose token comes after the page was closed, or asked for another, is refused and never sent", async () => {
  const world = new PageWorld();
  const fabric = world.connect();
  const made = [];
  const token = () => new Promise((resolve) => made.push(resolve));
  const first = fabric.login(token);
  const second = fabric.login(token);
  made[0]("old");
  await assert.rejects(first, { code: 0 });
  fabric.close();
  made[1]("new");
  await assert.rejects(second, { code: 0 });
});

test("a page that is closed before it hears that it may have no locks opens no connection", async () => {
  const world = new PageWorld({ locks: "refused" });
  world.connect().close();
  await settled();
  await settled();
  assert.equal(world.sockets.length, 0);
});

test("where there are no locks to be had a page has a connection of its own", async () => {
  const world = new PageWorld({ locks: "refused" });
  world.connect();
  await settled();
  await settled();
  assert.equal(world.sockets.length, 1);
});

test("a leader whose answer waits unread while this tab is blocked keeps its connection", async () => {
  const world = new PageWorld({ locks: "granted" });
  world.connect();
  await settled();
  await pass(5000);
  await pass(1000);
  await block(20_000);
  assert.equal(world.stolen, 0);
  world.note({ t: "here" });
  await pass(2000);
  assert.equal(world.stolen, 0);
});

test("a leader that doesn't answer loses its connection to a tab that is seen", async () => {
  const world = new PageWorld({ locks: "granted" });
  world.connect();
  await settled();
  await pass(7000);
  assert.equal(world.stolen, 1);
});

test("a tab that was hidden when a leader didn't answer asks again once it is seen", async () => {
  const world = new PageWorld({ locks: "granted" });
  world.connect();
  await settled();
  await pass(5000);
  world.document.hidden = true;
  world.document.dispatchEvent(new Event("visibilitychange"));
  await pass(3000);
  assert.equal(world.stolen, 0);
  world.document.hidden = false;
  world.document.dispatchEvent(new Event("visibilitychange"));
  await pass(2000);
  assert.equal(world.stolen, 1);
});
