/** A page's main thread that is blocked: other parts' events meanwhile waits unread, and nobody is dead for that. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { HOME, Rig, answersOf } from "./support.mjs";

/** The thread does nothing for `ms`; then a timer comes first, whatever else waits. */
function block(rig, ms) {
  rig.now += ms;
  rig.session.wake(rig.now);
}

for (const seconds of [0.7, 5, 20, 40]) {
  test(`a pong that waits unread while the page is blocked for ${seconds} s is read before the gateway is given up`, () => {
    const rig = new Rig().connect();
    rig.pass(3000 + 2000);
    block(rig, seconds * 1000);
    assert.equal(rig.session.state, "open");
    rig.push({ type: "pong" });
    rig.pass(2500);
    assert.equal(rig.session.state, "open");
  });
}

test("a gateway that is silent once the page goes on is given up a second later", () => {
  const rig = new Rig().connect();
  rig.pass(5000);
  block(rig, 20_000);
  rig.pass(999);
  assert.equal(rig.session.state, "open");
  rig.pass(1);
  assert.equal(rig.session.state, "waiting");
});

test("a page that is blocked again before it has read anything has that second once more, and not for ever", () => {
  const rig = new Rig().connect();
  rig.pass(5000);
  for (let n = 0; n < 3; n += 1) {
    block(rig, 6000);
    assert.equal(rig.session.state, "open");
  }
  block(rig, 6000);
  assert.equal(rig.session.state, "waiting");
});

test("timers of a hidden page are always late: it asks once more, and no more often", () => {
  const rig = new Rig().connect();
  rig.do("hide", true);
  rig.do("heard");
  rig.pass(30_000);
  block(rig, 40_000);
  assert.equal(rig.session.state, "open");
  block(rig, 40_000);
  assert.equal(rig.session.state, "waiting");
});

test("a socket that has opened while the page was blocked is not given up", () => {
  const rig = new Rig();
  rig.do("start");
  rig.do("discovered", answersOf([HOME, 20, ["oregon-1"]]));
  rig.take();
  block(rig, 10_000);
  assert.deepEqual(rig.take(), []);
  rig.do("opened", "websocket");
  assert.equal(rig.session.state, "open");
});

test("a token that was made while the page was blocked is sent before topics are asked for", () => {
  const rig = new Rig();
  const { tab } = rig.tab("a", () => new Promise(() => {}));
  tab.hello();
  tab.follow("user.42", {});
  rig.connect();
  rig.take();
  rig.pass(1000);
  block(rig, 8000);
  assert.deepEqual(rig.asked(), []);
  rig.do("note", { t: "token", token: "T" });
  assert.deepEqual(rig.asked().map(({ action }) => action), ["login", "subscribe"]);
});

test("a mark whose push waits unread is not taken for lost", async () => {
  const rig = new Rig();
  const { tab } = rig.tab("a");
  tab.follow("user.42", {});
  rig.connect();
  rig.subscribed(rig.sent().find(({ action }) => action === "subscribe"));
  const id = "00000000-0000-7000-8000-000000000001";
  const marked = tab.ask({ action: "read", topic: "user.42", id });
  const taken = () => rig.asked().forEach(({ ref }) => rig.push({ type: "marked", ref, topic: "user.42", id, mark: "read" }));
  taken();
  for (const ms of [2000, 4000]) {
    rig.pass(ms);
    taken();
  }
  block(rig, 30_000);
  rig.push({ type: "read", topic: "user.42", id, at: 1 });
  assert.equal((await marked).type, "read");
});

test("how long a page was blocked isn't how long a gateway takes to answer", () => {
  const rig = new Rig().connect();
  rig.pass(5000);
  block(rig, 40_000);
  rig.push({ type: "pong" });
  for (let n = 0; n < 3; n += 1) {
    rig.pass(3100);
    rig.push({ type: "pong" });
  }
  rig.pass(3000 + 5000);
  assert.notEqual(rig.session.state, "open");
});
