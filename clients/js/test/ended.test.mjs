/** No handler is called after its end, whichever handler ended it. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Rig, idOf } from "./support.mjs";

const TOPIC = "news.breaking";
const message = { type: "message", topic: TOPIC, id: idOf({ n: 1, at: 1 }), position: "p1", body: 1 };

/** Two subscriptions of one tab, of which the first that is called ends by `end` both it and the other. */
function two(handler, end) {
  const rig = new Rig().connect();
  const { tab, heard } = rig.tab("a");
  const called = [];
  const follow = (name, other) =>
    tab.follow(TOPIC, {
      since: "p0",
      [handler]: () => {
        called.push(name);
        end(tab, subscriptions[other]);
      },
    });
  const subscriptions = [];
  subscriptions.push(follow("first", 1), follow("second", 0));
  return { rig, called, heard };
}

const WHAT_HAPPENS = {
  onMessage: { t: "push", push: message, keys: null },
  onMark: { t: "push", push: { ...message, type: "read", at: 1 }, keys: null },
  onSubscribed: { t: "subscribed", topic: TOPIC, keys: null, recovered: true, resumed: true, position: "p1", isNews: true },
  onGap: { t: "subscribed", topic: TOPIC, keys: null, recovered: false, resumed: true, position: "p1", isNews: true },
  onError: { t: "refused", topic: TOPIC, keys: null, error: { code: 103 } },
};
const ENDS = {
  "unsubscribes the other": (tab, other) => other.unsubscribe(),
  "closes all": (tab) => tab.close(),
};

for (const [handler, note] of Object.entries(WHAT_HAPPENS)) {
  for (const [how, end] of Object.entries(ENDS)) {
    test(`an ${handler} that ${how}: the other one isn't called`, () => {
      const { rig, called } = two(handler, end);
      rig.tabs[0].note(note);
      assert.deepEqual(called, ["first"]);
    });
  }
}

test("a subscription that ends when it hears that it is served doesn't hear of its gap", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const called = [];
  const subscription = tab.follow(TOPIC, {
    onSubscribed: () => {
      called.push("served");
      subscription.unsubscribe();
    },
    onGap: () => called.push("gap"),
  });
  tab.note(WHAT_HAPPENS.onGap);
  assert.deepEqual(called, ["served"]);
});

test("a subscription that is made by a handler doesn't get what was there before it", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const called = [];
  tab.follow(TOPIC, {
    onMessage: () => {
      called.push("first");
      tab.follow(TOPIC, { onMessage: () => called.push("new") });
    },
  });
  tab.note(WHAT_HAPPENS.onMessage);
  assert.deepEqual(called, ["first"]);
});

test("what is asked of a closed page is refused at once, and what is followed is never called", async () => {
  const rig = new Rig().connect();
  const { tab, heard } = rig.tab("a");
  tab.close();
  rig.take();
  await assert.rejects(tab.ask({ action: "history", topic: TOPIC }), { code: 0 });
  tab.follow(TOPIC, { onMessage: () => assert.fail("called after its end") });
  tab.note(WHAT_HAPPENS.onMessage);
  tab.note({ t: "error", error: { code: 100 } });
  assert.deepEqual([rig.take(), heard], [[], []]);
});

test("a closed page says no token, and tells no fault of the function that makes it", async () => {
  for (const settle of ["resolve", "reject"]) {
    const rig = new Rig();
    let made;
    const sent = [];
    const { tab, heard } = rig.tab("a", () => new Promise((resolve, reject) => (made = { resolve, reject })), (note) => sent.push(note.t));
    tab.note({ t: "token?" });
    tab.close();
    made[settle](new Error("late"));
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([sent, heard], [["bye"], []]);
  }
});
