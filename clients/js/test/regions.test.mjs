import assert from "node:assert/strict";
import { test } from "node:test";

import { KnownRegions, chooseGateway, parseEndpoints, urlOf } from "../src/regions.ts";
import { randomsOf } from "./support.mjs";

const BASE = "http://127.0.0.1/";
const OREGON = "http://oregon/endpoints.json";
const DUBLIN = "http://dublin/endpoints.json";
const TOKYO = "http://tokyo/endpoints.json";

const gateway = (name, weight = 1) => ({ websocket: `ws://${name}/websocket`, sockjs: `http://${name}/sockjs`, weight });

function answer(url, ms, gateways = [gateway(new URL(url).host)]) {
  return { url, ms, endpoints: { region: new URL(url).host, gateways, alternates: [], retryMs: 0 } };
}

const order = (candidates) => candidates.map(({ gateway: { websocket } }) => new URL(websocket).host);

test("only URLs of the schemes asked for are URLs", () => {
  assert.equal(urlOf("https://news.example/a", BASE), "https://news.example/a");
  assert.equal(urlOf("/a", BASE), "http://127.0.0.1/a");
  assert.equal(urlOf("ws://a/b", BASE, ["ws:", "wss:"]), "ws://a/b");
  for (const bad of ["javascript:alert(1)", "data:text/html,x", "ws://a/", "http://", 7, null, "x".repeat(3000)]) {
    assert.equal(urlOf(bad, BASE), null);
  }
});

test("what can't be used of endpoints.json is left out", () => {
  const document = {
    region: "oregon",
    gateways: [
      { sockjs_url: "http://127.0.0.1:1/sockjs", websocket_url: "ws://127.0.0.1:1/websocket", weight: 0.25 },
      {},
      { sockjs_url: "ftp://x/", websocket_url: "http://x/" },
      { websocket_url: "wss://b/websocket", weight: -3 },
    ],
    alternates: [{ region: "dublin", endpoints_url: "http://127.0.0.1:2/endpoints.json" }, null],
    retry_ms: 1500,
  };
  assert.deepEqual(parseEndpoints(document, BASE), {
    region: "oregon",
    gateways: [
      { websocket: "ws://127.0.0.1:1/websocket", sockjs: "http://127.0.0.1:1/sockjs", weight: 0.25 },
      { websocket: "wss://b/websocket", sockjs: null, weight: 1 },
    ],
    alternates: [{ region: "dublin", url: "http://127.0.0.1:2/endpoints.json" }],
    retryMs: 1500,
  });
  for (const junk of [null, 7, [], { gateways: {} }, { retry_ms: NaN }]) {
    assert.deepEqual(parseEndpoints(junk, BASE), { region: "", gateways: [], alternates: [], retryMs: 0 });
  }
});

test("readers spread over gateways by weight", () => {
  const random = randomsOf(7);
  const gateways = [gateway("a", 1), gateway("b", 3), gateway("c", 6)];
  const count = { a: 0, b: 0, c: 0 };
  for (let n = 0; n < 10_000; n += 1) count[order([{ gateway: chooseGateway(gateways, random()) }])[0]] += 1;
  for (const [name, share] of [["a", 0.1], ["b", 0.3], ["c", 0.6]]) {
    assert.ok(Math.abs(count[name] / 10_000 - share) < 0.02, JSON.stringify(count));
  }
  assert.equal(chooseGateway([], 0.5), undefined);
});

test("home comes first while nothing is clearly faster, then the others by time", () => {
  const regions = new KnownRegions([OREGON, DUBLIN, TOKYO]);
  const answers = [answer(TOKYO, 90), answer(DUBLIN, 35), answer(OREGON, 40)];
  assert.deepEqual(order(regions.candidates(answers, 0, randomsOf(1))), ["oregon", "dublin", "tokyo"]);
});

test("a region that was clearly faster twice in a row is home from then on", () => {
  const regions = new KnownRegions([OREGON, DUBLIN]);
  const answers = [answer(OREGON, 180), answer(DUBLIN, 30)];
  assert.deepEqual(order(regions.candidates(answers, 0, randomsOf(1))), ["oregon", "dublin"]);
  assert.ok(regions.undecided);
  assert.deepEqual(order(regions.candidates(answers, 0, randomsOf(1))), ["dublin", "oregon"]);
  assert.equal(regions.home, DUBLIN);
  assert.ok(!regions.undecided);
});

test("one slow answer moves nobody", () => {
  const regions = new KnownRegions([OREGON, DUBLIN]);
  regions.candidates([answer(OREGON, 900), answer(DUBLIN, 30)], 0, randomsOf(1));
  regions.candidates([answer(OREGON, 30), answer(DUBLIN, 30)], 0, randomsOf(1));
  regions.candidates([answer(OREGON, 900), answer(DUBLIN, 30)], 0, randomsOf(1));
  assert.equal(regions.home, OREGON);
});

test("a region without gateways, or that doesn't answer, is left out, and stays home", () => {
  const regions = new KnownRegions([OREGON, DUBLIN]);
  assert.deepEqual(order(regions.candidates([answer(OREGON, 5, []), answer(DUBLIN, 30)], 0, randomsOf(1))), ["dublin"]);
  const silent = { url: OREGON, ms: Infinity, endpoints: null };
  assert.deepEqual(order(regions.candidates([silent, answer(DUBLIN, 30)], 0, randomsOf(1))), ["dublin"]);
  assert.equal(regions.home, OREGON);
  assert.deepEqual(regions.candidates([silent], 0, randomsOf(1)), []);
});

test("two gateways of home come before another region's", () => {
  const regions = new KnownRegions([OREGON, DUBLIN]);
  const answers = [answer(OREGON, 20, [gateway("a"), gateway("b"), gateway("c")]), answer(DUBLIN, 30)];
  const found = order(regions.candidates(answers, 0, randomsOf(3)));
  assert.equal(found.length, 3);
  assert.equal(found[2], "dublin");
  assert.notEqual(found[0], found[1]);
});

test("a gateway that failed lately comes last, and is itself again after half a minute", () => {
  const regions = new KnownRegions([OREGON, DUBLIN]);
  const answers = [answer(OREGON, 20), answer(DUBLIN, 30)];
  regions.failed({ url: OREGON, gateway: gateway("oregon") }, 1000);
  assert.deepEqual(order(regions.candidates(answers, 2000, randomsOf(1))), ["dublin", "oregon"]);
  assert.deepEqual(order(regions.candidates(answers, 31_000, randomsOf(1))), ["oregon", "dublin"]);
});

test("regions that answers name are learned, and remembered while they are named", () => {
  const regions = new KnownRegions([OREGON]);
  const named = answer(OREGON, 20);
  named.endpoints.alternates.push({ region: "dublin", url: DUBLIN });
  assert.deepEqual(regions.learn(named.endpoints), [DUBLIN]);
  assert.deepEqual(regions.learn(named.endpoints), []);
  const memory = regions.memory([named, { url: TOKYO, ms: 1, endpoints: null }]);
  assert.deepEqual(memory, { home: OREGON, urls: [OREGON, DUBLIN] });
  assert.deepEqual(new KnownRegions([OREGON], { ...memory, home: DUBLIN }).home, DUBLIN);
});

test("a page that was offline once doesn't forget the regions that earlier ones found", () => {
  const named = answer(OREGON, 20);
  named.endpoints.alternates.push({ region: "dublin", url: DUBLIN });
  const first = new KnownRegions([OREGON]);
  first.learn(named.endpoints);
  const memory = first.memory([named]);
  const offline = new KnownRegions([OREGON], memory);
  assert.equal(offline.memory(offline.urls.map((url) => ({ url, ms: Infinity, endpoints: null }))), null);
  assert.equal(offline.memory([answer(OREGON, 20, []), { url: DUBLIN, ms: Infinity, endpoints: null }]), null);
  assert.deepEqual(new KnownRegions([OREGON], memory).urls, [OREGON, DUBLIN]);
});

test("a memory that makes no sense is none", () => {
  for (const junk of [null, 7, {}, { home: "javascript:x", urls: ["javascript:x", 7] }, { urls: "abc" }]) {
    const regions = new KnownRegions([OREGON], junk);
    assert.deepEqual([regions.home, regions.urls], [OREGON, [OREGON]]);
  }
});

test("there are at most 16 regions, whatever answers name", () => {
  const regions = new KnownRegions([OREGON]);
  const alternates = Array.from({ length: 100 }, (_, n) => ({ region: `r${n}`, url: `http://r${n}/` }));
  assert.equal(regions.learn({ alternates }).length, 15);
});

test("patience for slower regions is as long as the fastest took, within bounds", () => {
  const regions = new KnownRegions([OREGON, DUBLIN]);
  assert.deepEqual([5, 300, 5000].map((ms) => regions.patience(ms, false, 0)), [100, 300, 1000]);
});

test("home is waited for longer, unless one of its gateways has just failed", () => {
  const regions = new KnownRegions([OREGON, DUBLIN]);
  assert.equal(regions.patience(5, true, 0), 1000);
  regions.failed({ url: DUBLIN, gateway: gateway("dublin") }, 1000);
  assert.equal(regions.patience(5, true, 2000), 1000);
  regions.failed({ url: OREGON, gateway: gateway("oregon") }, 1000);
  assert.equal(regions.patience(5, true, 2000), 100);
  assert.equal(regions.patience(5, true, 32_000), 1000);
});

test("a region that was asked later than home has to be faster twice when both are asked at once", () => {
  const regions = new KnownRegions([OREGON]);
  const late = { ...answer(DUBLIN, 5), isLate: true };
  const look = (...answers) => order(regions.candidates(answers, 0, randomsOf(1)))[0];
  assert.equal(look(answer(OREGON, 180), late), "oregon");
  assert.ok(regions.undecided);
  assert.equal(look(answer(OREGON, 180), answer(DUBLIN, 5)), "oregon");
  assert.ok(regions.undecided);
  assert.equal(look(answer(OREGON, 180), answer(DUBLIN, 5)), "dublin");
});

test("whatever answers come, candidates are few, distinct and real", () => {
  for (let seed = 1; seed <= 300; seed += 1) {
    const random = randomsOf(seed);
    const regions = new KnownRegions([OREGON, DUBLIN, TOKYO]);
    for (let now = 0; now < 200_000; now += 10_000) {
      const answers = regions.urls.map((url) =>
        random() < 0.3
          ? { url, ms: Infinity, endpoints: null }
          : answer(url, random() * 300, Array.from({ length: Math.floor(random() * 4) }, (_, n) => gateway(`${new URL(url).host}-${n}`))),
      );
      const found = regions.candidates(answers, now, random);
      const offered = answers.flatMap(({ endpoints }) => endpoints?.gateways ?? []);
      assert.ok(found.length <= 4);
      assert.equal(found.length > 0, offered.length > 0);
      assert.equal(new Set(order(found)).size, found.length);
      for (const { gateway: one } of found) assert.ok(offered.includes(one));
      if (found.length && random() < 0.5) regions.failed(found[0], now);
    }
  }
});
