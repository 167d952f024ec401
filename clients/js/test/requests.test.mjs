import assert from "node:assert/strict";
import { test } from "node:test";

import { FabricError } from "../src/api.ts";
import { BOTH, Rig, idOf, randomsOf } from "./support.mjs";

const TOPIC = "user.42";
const ID = idOf({ n: 7, at: 1000 });
const COPY = idOf({ n: 7, at: 2000 });

/** A connected rig, and a tab that follows the mailbox. */
function withMailbox() {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  tab.follow(TOPIC, {});
  rig.obey();
  return { rig, tab };
}

/** The present outcome of a promise: null, a value, or a FabricError. */
function outcomeOf(promise) {
  const found = { now: null };
  promise.then((value) => (found.now = value), (error) => (found.now = error));
  return async () => {
    await new Promise((resolve) => setImmediate(resolve));
    return found.now;
  };
}

const dismiss = (tab, id = ID) => outcomeOf(tab.ask({ action: "dismiss", topic: TOPIC, id }));
const marks = (rig) => rig.sent().filter(({ action }) => action === "dismiss");
const taken = (rig, { ref, topic, id }) => rig.push({ type: "marked", ref, topic, id, mark: "dismiss" });
const dismissed = (rig, id = ID, type = "dismissed") => rig.push({ type, topic: TOPIC, id, at: 5, position: "p9" });

test("a mark is done when it is pushed, not when the gateway has taken it", async () => {
  const { rig, tab } = withMailbox();
  const outcome = dismiss(tab);
  taken(rig, marks(rig)[0]);
  dismissed(rig, ID, "read");
  dismissed(rig, idOf({ n: 8, at: 1000 }));
  assert.equal(await outcome(), null);
  dismissed(rig, COPY);
  assert.equal((await outcome()).type, "dismissed");
  rig.pass(20_000);
  assert.deepEqual(marks(rig), []);
});

test("the push may come before the reply", async () => {
  const { rig, tab } = withMailbox();
  const outcome = dismiss(tab);
  const [verb] = marks(rig);
  dismissed(rig);
  assert.equal((await outcome()).type, "dismissed");
  taken(rig, verb);
  rig.pass(2500);
  assert.deepEqual(marks(rig), []);
});

test("a mark that is taken and not pushed is sent again, until it is", async () => {
  const { rig, tab } = withMailbox();
  const outcome = dismiss(tab);
  const [verb] = marks(rig);
  taken(rig, verb);
  rig.pass(1999);
  assert.deepEqual(marks(rig), []);
  rig.pass(1);
  assert.deepEqual(marks(rig), [verb]);
  taken(rig, verb);
  assert.equal(await outcome(), null);
  dismissed(rig);
  assert.equal((await outcome()).type, "dismissed");
});

test("a mark that no push ever confirms is given up, and the page learns that it may work later", async () => {
  const { rig, tab } = withMailbox();
  const outcome = dismiss(tab);
  let sent = 0;
  for (let second = 0; second < 20; second += 1) {
    for (const verb of marks(rig)) {
      sent += 1;
      taken(rig, verb);
    }
    rig.pass(1000);
    rig.push({ type: "pong" });
  }
  assert.equal(sent, 3);
  const error = await outcome();
  assert.ok(error instanceof FabricError);
  assert.deepEqual([error.code, error.temporary], [100, true]);
});

test("what was pushed already isn't pushed again, and isn't waited for", async () => {
  const { rig, tab } = withMailbox();
  dismissed(rig, COPY);
  const outcome = dismiss(tab);
  taken(rig, marks(rig)[0]);
  assert.equal((await outcome()).type, "marked");
});

test("where the mailbox isn't followed no push comes, and none is waited for", async () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const outcome = dismiss(tab);
  taken(rig, marks(rig)[0]);
  assert.equal((await outcome()).type, "marked");
});

test("a push that comes with what was missed answers a mark of the connection before", async () => {
  const { rig, tab } = withMailbox();
  const outcome = dismiss(tab);
  taken(rig, marks(rig)[0]);
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  dismissed(rig);
  assert.equal((await outcome()).type, "dismissed");
});

test("a clock that is set back delays no mark", () => {
  const { rig, tab } = withMailbox();
  dismiss(tab);
  taken(rig, marks(rig)[0]);
  rig.now -= 3_600_000;
  rig.session.wake(rig.now);
  rig.pass(2000);
  assert.equal(marks(rig).length, 1);
});

test("a tab that introduces itself again asks nothing twice", () => {
  const { rig, tab } = withMailbox();
  dismiss(tab);
  marks(rig);
  tab.hello();
  assert.deepEqual(marks(rig), []);
});

test("whatever a gateway forgets, loses or cuts off, each mark is answered once when it is well again", async () => {
  for (let seed = 1; seed <= 200; seed += 1) {
    const random = randomsOf(seed);
    const rig = new Rig({ random }).connect();
    const { tab } = rig.tab("a");
    tab.follow(TOPIC, {});
    rig.obey();
    const found = [];
    const there = new Set();
    let asked = 0;
    for (let step = 0; step < 180; step += 1) {
      const isWell = step >= 60;
      if (!isWell && random() < 0.5) {
        tab.ask({ action: "dismiss", topic: TOPIC, id: idOf({ n: (asked += 1), at: 1000 }) }).then(({ id }) => found.push(id), () => found.push(null));
      }
      for (const effect of rig.take()) {
        if (effect.do === "discover") rig.do("discovered", BOTH);
        if (effect.do === "open") rig.do("opened", "websocket");
        if (effect.do !== "send") continue;
        const { verb } = effect;
        if (verb.action === "subscribe") rig.subscribed(verb, { recovered: true });
        else if (verb.action === "ping") rig.push({ type: "pong", ref: verb.ref });
        else if (!isWell && random() < 0.2) rig.push({ type: "error", ref: null, code: 111, reason: "too many", temporary: true });
        else {
          taken(rig, verb);
          // A mark that is there already isn't pushed again.
          if (!there.has(verb.id) && (isWell || random() < 0.6)) dismissed(rig, verb.id);
          there.add(verb.id);
        }
      }
      if (!isWell && random() < 0.1 && rig.session.state === "open") rig.do("closed", { code: 1006 });
      rig.pass(500);
    }
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(found.length, asked, `seed ${seed}`);
    const done = found.filter((id) => id !== null);
    assert.equal(new Set(done).size, done.length);
  }
});
