import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { KnownRegions } from "../src/regions.ts";
import { discover } from "../src/discovery.ts";
import { AWAY, HOME, gatewayOf } from "./support.mjs";

const NOW = 1_735_689_600_000;

/** A discovery of regions whose answers the test gives, on a clock that the test moves. */
class AskedRegions {
  constructor(regions) {
    this.replies = new Map(); // url → resolve
    this.result = null;
    this.time = 1;
    const ask = (url) => new Promise((resolve) => this.replies.set(url, resolve));
    discover(regions, NOW, { ask, clock: () => this.time }).then((answers) => (this.result = answers));
  }

  async answer(url, alternates = []) {
    const region = new URL(url).host;
    const endpoints = { region, gateways: [gatewayOf(region)], alternates: alternates.map((other) => ({ url: other })), retryMs: 0 };
    this.replies.get(url)({ endpoints });
    await settled();
  }

  async pass(ms) {
    this.time += ms;
    for (let n = 0; n < ms; n += 1) mock.timers.tick(1);
    await settled();
  }

  get regions() {
    return this.result?.map(({ endpoints, isLate }) => [endpoints?.region ?? null, isLate]);
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test.beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
test.afterEach(() => mock.timers.reset());

test("it ends as soon as all have answered", async () => {
  const asked = new AskedRegions(new KnownRegions([HOME, AWAY]));
  await asked.answer(HOME);
  assert.equal(asked.result, null);
  await asked.answer(AWAY);
  assert.deepEqual(asked.regions, [["oregon", false], ["dublin", false]]);
});

test("others are waited for as long as home took, and 100 ms at least", async () => {
  const asked = new AskedRegions(new KnownRegions([HOME, AWAY]));
  await asked.pass(20);
  await asked.answer(HOME);
  await asked.pass(99);
  assert.equal(asked.result, null);
  await asked.pass(1);
  assert.deepEqual(asked.regions, [["oregon", false], [null, false]]);
});

test("home is waited for when another one was quicker", async () => {
  const asked = new AskedRegions(new KnownRegions([HOME, AWAY]));
  await asked.answer(AWAY);
  await asked.pass(600);
  assert.equal(asked.result, null);
  await asked.answer(HOME);
  assert.deepEqual(asked.regions, [["oregon", false], ["dublin", false]]);
});

test("home is not waited for without end", async () => {
  const asked = new AskedRegions(new KnownRegions([HOME, AWAY]));
  await asked.answer(AWAY);
  await asked.pass(1000);
  assert.deepEqual(asked.regions, [[null, false], ["dublin", false]]);
});

test("home is not waited for after one of its gateways has failed", async () => {
  const regions = new KnownRegions([HOME, AWAY]);
  regions.failed({ url: HOME, gateway: gatewayOf("oregon") }, NOW);
  const asked = new AskedRegions(regions);
  await asked.answer(AWAY);
  await asked.pass(100);
  assert.deepEqual(asked.regions, [[null, false], ["dublin", false]]);
});

test("a region that an answer names is asked too, and marked as asked later", async () => {
  const asked = new AskedRegions(new KnownRegions([HOME]));
  await asked.answer(HOME, [AWAY]);
  assert.equal(asked.result, null);
  await asked.answer(AWAY);
  assert.deepEqual(asked.regions, [["oregon", false], ["dublin", true]]);
});

/** The result of a discovery of HOME, for which `respond()` answers. */
async function foundWhere(respond) {
  mock.method(globalThis, "fetch", async () => respond());
  const answers = discover(new KnownRegions([HOME]), NOW);
  await settled();
  const [{ endpoints, wrong }] = await answers;
  mock.restoreAll();
  return [endpoints?.gateways.length, wrong];
}

test("what is no endpoints.json, and never will be, is distinguished from a region in trouble", async () => {
  const html = (status) => new Response("<!doctype html><h1>Hello</h1>", { status });
  const gateways = [{ websocket_url: "ws://g/websocket" }];
  assert.deepEqual(await foundWhere(() => html(404)), [undefined, "HTTP 404"]);
  assert.deepEqual(await foundWhere(() => html(200)), [undefined, "it is an HTML page, no endpoints.json"]);
  assert.deepEqual(await foundWhere(() => Response.json({ error: "no such thing" })), [undefined, "it is something else, no endpoints.json"]);
  assert.deepEqual(await foundWhere(() => Response.json({ gateways })), [1, undefined]);
  assert.deepEqual(await foundWhere(() => Response.json({ gateways: [] }, { status: 503 })), [0, undefined]);
  for (const status of [408, 429, 500, 502, 503]) assert.deepEqual(await foundWhere(() => html(status)), [undefined, undefined]);
  assert.deepEqual(await foundWhere(() => Promise.reject(new TypeError("no network"))), [undefined, undefined]);
});
