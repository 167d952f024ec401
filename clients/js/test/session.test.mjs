import assert from "node:assert/strict";
import { test } from "node:test";

import { HEARTBEAT } from "../src/liveness.ts";
import { STATES, nextState } from "../src/session.ts";
import { AWAY, BOTH, HOME, Rig, answersOf } from "./support.mjs";

const did = (effects) => effects.map((effect) => effect.do);
const opened = (effects) => effects.filter((effect) => effect.do === "open").map(({ target, transport }) => [target.region, transport]);

test("an event that a state doesn't list changes nothing", () => {
  assert.equal(nextState("open", "lost"), "waiting");
  assert.equal(nextState("stopped", "retry"), "stopped");
  assert.equal(nextState("idle", "opened"), "idle");
});

test("every state that the table leads to is in the table", () => {
  for (const events of Object.values(STATES)) {
    for (const next of Object.values(events)) assert.ok(next in STATES);
  }
});

test("it asks the regions, opens the best gateway, and says how it goes", () => {
  const rig = new Rig();
  rig.do("start");
  assert.deepEqual(did(rig.take()), ["discover"]);
  rig.do("discovered", BOTH);
  assert.deepEqual(opened(rig.take()), [["oregon", "websocket"]]);
  rig.do("opened", "websocket");
  assert.deepEqual(rig.states(), ["finding", "connecting", "open"]);
  assert.equal(rig.session.details.region, "oregon");
});

test("a region that seems clearly faster than home is measured once more before it is believed", () => {
  const rig = new Rig();
  rig.do("start");
  const answers = answersOf([HOME, 300, ["oregon-1"]], [AWAY, 20, ["dublin-1"]]);
  rig.do("discovered", answers);
  assert.deepEqual(did(rig.take()), ["discover", "discover"]);
  rig.do("discovered", answers);
  assert.deepEqual(opened(rig.take()), [["dublin", "websocket"]]);
});

test("a gateway that can't be reached leaves its place to the next at once", () => {
  const rig = new Rig({ transports: ["websocket"] });
  rig.do("start");
  rig.do("discovered", BOTH);
  rig.take();
  rig.do("closed", { code: 1006 });
  assert.deepEqual(opened(rig.take()), [["dublin", "websocket"]]);
});

test("a gateway that says nothing for three seconds is given up", () => {
  const rig = new Rig();
  rig.do("start");
  rig.do("discovered", BOTH);
  rig.take();
  rig.pass(2999);
  assert.deepEqual(rig.take(), []);
  rig.pass(1);
  const effects = rig.take();
  assert.deepEqual(did(effects), ["hangup", "open"]);
  assert.deepEqual(opened(effects), [["dublin", "websocket"]]);
});

test("where even endpoints.json took long, opening may take longer, up to 15 s", () => {
  for (const [ms, patience] of [[400, 3200], [1000, 8000], [3900, 15_000]]) {
    const rig = new Rig({ transports: ["websocket"] });
    rig.do("start");
    rig.do("discovered", answersOf([HOME, ms, ["oregon-1"]], [AWAY, ms, ["dublin-1"]]));
    rig.take();
    rig.pass(patience - 1);
    assert.deepEqual(rig.take(), []);
    rig.pass(1);
    assert.deepEqual(opened(rig.take()), [["dublin", "websocket"]]);
  }
});

test("a region that only home has named is measured twice before it is believed", () => {
  const rig = new Rig();
  const answers = answersOf([HOME, 300, ["oregon-1"]], [AWAY, 20, ["dublin-1"]]);
  rig.do("start");
  rig.do("discovered", [answers[0], { ...answers[1], isLate: true }]);
  rig.do("discovered", answers);
  assert.deepEqual(did(rig.take()), ["discover", "discover", "discover"]);
  rig.do("discovered", answers);
  assert.deepEqual(opened(rig.take()), [["dublin", "websocket"]]);
});

test("where WebSocket is refused and HTTP is answered, SockJS is used, and remembered for ten minutes", () => {
  const rig = new Rig();
  rig.do("start");
  rig.do("discovered", BOTH);
  rig.do("closed", { code: 1006 });
  assert.equal(rig.take().at(-1).do, "probe");
  rig.do("probed", true);
  assert.deepEqual(opened(rig.take()), [["oregon", "sockjs"]]);
  rig.do("opened", "xhr-streaming");
  rig.do("closed", { code: 1006 });
  rig.pass(31_000);
  rig.do("discovered", BOTH);
  assert.deepEqual(opened(rig.take()), [["oregon", "sockjs"]]);
  rig.do("opened", "xhr-streaming");
  rig.pass(600_000);
  rig.take();
  rig.session.state === "open" && rig.do("closed", { code: 1006 });
  rig.pass(31_000);
  rig.do("discovered", BOTH);
  assert.deepEqual(opened(rig.take()), [["oregon", "websocket"]]);
});

test("where HTTP isn't answered either the gateway is dead, not WebSocket", () => {
  const rig = new Rig();
  rig.do("start");
  rig.do("discovered", BOTH);
  rig.do("closed", { code: 1006 });
  rig.take();
  rig.do("probed", false);
  assert.deepEqual(opened(rig.take()), [["dublin", "websocket"]]);
});

test("a WebSocket that opens and never says a word, twice, is one that something has swallowed", () => {
  const rig = new Rig();
  const one = answersOf([HOME, 20, ["oregon-1"]]);
  rig.connect(one);
  for (const expected of ["websocket", "sockjs"]) {
    rig.do("closed", { code: 1006 });
    rig.pass(1000);
    rig.take();
    rig.do("discovered", one);
    assert.deepEqual(opened(rig.take()), [["oregon", expected]]);
    rig.do("opened", expected);
  }
});

test("when nobody answers it waits, longer each time, and blames no gateway", () => {
  const rig = new Rig({ random: () => 1 });
  const nobody = answersOf([HOME, Infinity, null], [AWAY, Infinity, null]);
  rig.do("start");
  for (const wait of [500, 1000, 2000]) {
    rig.do("discovered", nobody);
    assert.equal(rig.session.details.wait, wait);
    assert.equal(rig.session.details.reason, "no answer");
    rig.take();
    rig.pass(wait);
    assert.deepEqual(did(rig.take()), ["discover"]);
  }
  rig.do("discovered", BOTH);
  assert.deepEqual(opened(rig.take()), [["oregon", "websocket"]]);
});

test("a region without gateways says when to come back", () => {
  const rig = new Rig({ random: () => 0 });
  const answers = answersOf([HOME, 20, []]);
  answers[0].endpoints.retryMs = 2000;
  rig.do("start");
  rig.do("discovered", answers);
  assert.equal(rig.session.details.wait, 2000);
});

test("a lost gateway is left for another, after at most half a second", () => {
  const rig = new Rig({ random: () => 0.999 }).connect();
  rig.do("closed", { code: 1006 });
  assert.equal(rig.session.state, "waiting");
  rig.take();
  rig.pass(500);
  assert.deepEqual(did(rig.take()), ["discover"]);
  rig.do("discovered", BOTH);
  assert.deepEqual(opened(rig.take()), [["dublin", "websocket"]]);
});

test("it goes home after some minutes, if home has a gateway again", () => {
  const rig = new Rig().connect(answersOf([HOME, 20, []], [AWAY, 80, ["dublin-1"]]));
  assert.equal(rig.session.details.region, "dublin");
  rig.take();
  const discoveries = () => rig.take().filter((effect) => effect.do === "discover").length;
  const livesFor = (ms) => {
    for (let passed = 0; passed < ms; passed += 3000) {
      rig.pass(3000);
      rig.do("heard");
    }
  };
  livesFor(297_000);
  assert.equal(discoveries(), 0);
  livesFor(6000);
  assert.equal(discoveries(), 1);
  rig.do("discovered", answersOf([HOME, 20, []], [AWAY, 80, ["dublin-1"]]));
  assert.equal(rig.session.state, "open");
  livesFor(303_000);
  rig.take();
  rig.do("discovered", BOTH);
  const effects = rig.take();
  assert.equal(did(effects)[0], "hangup");
  assert.deepEqual(opened(effects), [["oregon", "websocket"]]);
});

test("a silent socket is asked for a sign of life, and given up without one", () => {
  const rig = new Rig().connect();
  rig.take();
  rig.pass(2999);
  assert.deepEqual(rig.take(), []);
  rig.pass(1);
  assert.deepEqual(rig.sent(), [{ action: "ping" }]);
  rig.pass(2500);
  assert.equal(rig.session.state, "waiting");
  assert.equal(rig.session.details.reason, "no sign of life");
  assert.deepEqual(did(rig.take()), ["hangup"]);
});

test("from the last word of a region to the search for another, 6 s pass at most", () => {
  const rig = new Rig({ random: () => 0.9999 }).connect();
  rig.take();
  const heard = rig.now;
  while (!did(rig.take()).includes("discover")) rig.pass(1);
  assert.ok(rig.now - heard <= 6000, `${rig.now - heard} ms`);
});

test("anything that comes in is a sign of life", () => {
  const rig = new Rig().connect();
  for (let n = 0; n < 20; n += 1) {
    rig.pass(2900);
    rig.push({ type: "pong" });
  }
  assert.equal(rig.session.state, "open");
  assert.deepEqual(rig.sent(), []);
});

test("a slow network has longer for its answers", () => {
  const rig = new Rig().connect();
  rig.pass(3000);
  rig.pass(2000);
  rig.push({ type: "pong" });
  rig.pass(3000);
  rig.take();
  rig.pass(7900);
  assert.equal(rig.session.state, "open");
  rig.pass(200);
  assert.equal(rig.session.state, "waiting");
});

/** Connected where WebSocket may not be used. */
function overSockJS(answers = BOTH) {
  const rig = new Rig({ transports: ["xhr-streaming"] });
  rig.do("start");
  rig.do("discovered", answers);
  rig.do("opened", "xhr-streaming");
  rig.take();
  return rig;
}

test("over SockJS a page that is seen leaves a silent gateway as soon as over WebSocket", () => {
  const [sockjs, websocket] = [overSockJS(), new Rig().connect()].map((rig) => {
    const cut = rig.now;
    while (rig.session.state === "open") rig.pass(10);
    return rig.now - cut;
  });
  assert.equal(sockjs, websocket);
});

test("where requests are slow, so may be the first answer to a ping", () => {
  const rig = overSockJS(answersOf([HOME, 1000, ["oregon-1"]]));
  rig.pass(HEARTBEAT.visible + 3999);
  assert.equal(rig.session.state, "open");
  rig.pass(1);
  assert.equal(rig.session.state, "waiting");
});

test("over SockJS the gateway's heartbeats are signs of life, and a hidden page asks for none", () => {
  const rig = overSockJS();
  rig.do("hide", true);
  rig.do("heard");
  for (let n = 0; n < 20; n += 1) {
    rig.pass(25_000);
    rig.do("heard");
  }
  assert.equal(rig.session.state, "open");
  assert.deepEqual(rig.sent(), []);
});

test("a sign of life is asked for in the words that a gateway answers soonest", () => {
  const rig = new Rig().connect();
  rig.take();
  rig.pass(3000);
  assert.deepEqual(rig.sent().map((verb) => JSON.stringify(verb)), ['{"action":"ping"}']);
});

test("what a gateway in a hurry didn't read is asked again, eight verbs a second", async () => {
  const rig = new Rig({ random: () => 0 }).connect();
  const { tab } = rig.tab("a");
  const marks = Array.from({ length: 25 }, (_, n) => tab.ask({ action: "read", topic: "user.7", id: `m${n}` }));
  const first = rig.sent();
  assert.equal(first.length, 25);
  for (const { ref, id } of first.slice(0, 2)) rig.push({ type: "marked", ref, id });
  rig.push({ type: "error", code: 111, temporary: true });
  const asked = [];
  for (const count of [8, 8, 7]) {
    rig.pass(1000);
    const again = rig.sent().filter(({ action }) => action === "read");
    assert.equal(again.length, count);
    for (const { ref, id } of again) rig.push({ type: "marked", ref, id });
    asked.push(...again);
  }
  assert.deepEqual(asked, first.slice(2));
  assert.equal((await Promise.all(marks)).length, 25);
  rig.pass(3000);
  assert.deepEqual(rig.sent().filter(({ action }) => action === "read"), []);
});

test("hidden pages ask after 30 s, over SockJS if there are no heartbeats", () => {
  for (const rig of [new Rig().connect(), overSockJS()]) {
    rig.do("hide", true);
    rig.do("heard");
    rig.take();
    rig.pass(29_999);
    assert.deepEqual(rig.take(), []);
    rig.pass(1);
    assert.deepEqual(rig.sent(), [{ action: "ping" }]);
    rig.pass(9999);
    assert.equal(rig.session.state, "open");
    rig.pass(1);
    assert.equal(rig.session.state, "waiting");
  }
});

test("a hidden page that carries others' news is watched as closely as they are", () => {
  const rig = new Rig().connect();
  rig.do("hide", true);
  rig.do("heard");
  rig.take();
  rig.pass(2000);
  rig.do("note", { t: "look" });
  rig.pass(1000);
  assert.deepEqual(rig.sent(), [{ action: "ping" }]);
});

test("after a sleep the socket is asked first, not given up and not trusted", () => {
  const rig = new Rig().connect();
  rig.take();
  rig.now += 8 * 3_600_000;
  rig.session.wake(rig.now);
  assert.equal(rig.session.state, "open");
  assert.deepEqual(rig.sent(), [{ action: "ping" }]);
  rig.pass(2500);
  assert.equal(rig.session.state, "waiting");
});

test("a page that waits tries again soon when the network is back or it is seen", () => {
  for (const event of ["recheck", "hide"]) {
    const rig = new Rig().connect();
    for (let n = 0; n < 12; n += 1) {
      rig.session.state === "open" && rig.do("closed", { code: 1006 });
      rig.pass(60_000);
      rig.do("discovered", answersOf([HOME, Infinity, null]));
    }
    rig.take();
    assert.ok(rig.session.due() - rig.now > 10_000);
    rig.do(event, false);
    rig.pass(500);
    assert.deepEqual(did(rig.take()), ["discover"]);
  }
});

test("nothing that happens to the page makes it try before the gateway allows it", () => {
  const rig = new Rig().connect();
  rig.push({ type: "disconnect", code: 1013, reason: "this box is full", reconnect: true, retry_after_ms: 10_000 });
  rig.do("closed", { code: 1013 });
  rig.take();
  rig.do("recheck");
  rig.pass(9999);
  assert.deepEqual(did(rig.take()), []);
  rig.pass(1);
  assert.deepEqual(did(rig.take()), ["discover"]);
});

test("a clock that is set back doesn't leave the page waiting", () => {
  const rig = new Rig({ random: () => 1 }).connect();
  rig.do("closed", { code: 1006 });
  rig.take();
  rig.now -= 3_600_000;
  rig.session.wake(rig.now);
  rig.pass(500);
  assert.deepEqual(did(rig.take()), ["discover"]);
});

test("a disconnect push is obeyed when no close follows it", () => {
  const rig = new Rig({ random: () => 0 }).connect();
  rig.pass(2000);
  rig.push({ type: "disconnect", code: 1012, reason: "this box is being drained", reconnect: true, retry_after_ms: 640 });
  rig.pass(1000);
  assert.equal(rig.session.state, "waiting");
  assert.deepEqual([rig.session.details.reason, rig.session.details.wait], ["this box is being drained", 640]);
});

test("a gateway that says stop is obeyed for good, until somebody logs in", () => {
  const rig = new Rig().connect();
  rig.push({ type: "disconnect", code: 4001, reason: "invalid token", reconnect: false });
  rig.do("closed", { code: 4001 });
  assert.equal(rig.session.state, "stopped");
  rig.take();
  rig.pass(3_600_000);
  assert.deepEqual(rig.take(), []);
  rig.do("note", { t: "ask", key: "a/1", verb: { action: "login", token: "new" } });
  assert.deepEqual(did(rig.take()), ["discover"]);
});

test("a clock that is set back doesn't keep the page from a gateway or from WebSocket for longer", () => {
  const one = answersOf([HOME, 20, ["oregon-1", "oregon-2"]]);
  const rig = new Rig({ random: () => 0 });
  rig.do("start");
  rig.do("discovered", one);
  rig.do("closed", { code: 1006 });
  rig.do("probed", true);
  rig.do("opened", "xhr-streaming");
  rig.now -= 3_600_000;
  rig.session.wake(rig.now);
  rig.do("heard");
  rig.do("closed", { code: 1006 });
  const opens = [];
  for (let passed = 0; passed < 700_000; passed += 50_000) {
    rig.pass(1);
    rig.take();
    rig.do("discovered", one);
    opens.push(...rig.take().filter((effect) => effect.do === "open").map(({ target, transport }) => `${target.gateway.websocket} ${transport}`));
    rig.do("opened", "any");
    rig.pass(49_000);
    rig.do("closed", { code: 1006 });
    rig.pass(1000);
  }
  assert.equal(opens[0], "ws://oregon-2/websocket sockjs");
  assert.ok(opens.slice(1).includes("ws://oregon-1/websocket websocket"), opens.join());
});

test("a clock that was set back while no connection was open grants no fresh start", () => {
  const rig = new Rig({ random: () => 1 });
  const nobody = answersOf([HOME, Infinity, null]);
  rig.do("start");
  rig.do("discovered", nobody);
  rig.now -= 3_600_000;
  rig.session.wake(rig.now);
  rig.pass(500);
  rig.do("discovered", nobody);
  assert.equal(rig.session.details.wait, 1000);
});

test("a gateway that says stop is obeyed, though home is back in the same moment", () => {
  const rig = new Rig().connect(answersOf([HOME, 20, []], [AWAY, 80, ["dublin-1"]]));
  rig.push({ type: "disconnect", code: 4001, reason: "invalid token", reconnect: false });
  rig.take();
  rig.do("discovered", BOTH);
  assert.deepEqual(rig.take(), []);
  rig.pass(1000);
  assert.equal(rig.session.state, "stopped");
});
