/** Lists and routers of pages follow and leave topics by the hundred. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Rig } from "./support.mjs";

const TOPICS = 128;
const VERBS = 256;
const VERBS_PER_SECOND = 10;

/** The limits of a gateway: counts the sent verbs over time, and never has to refuse one. */
class Allowance {
  constructor(rig, verbs = VERBS, verbsPerSecond = VERBS_PER_SECOND) {
    Object.assign(this, { rig, verbs, verbsPerSecond, left: verbs, at: rig.now, sent: [] });
  }

  /** Let `ms` pass, with a turn of the event loop each `step` ms, and take the sent verbs. */
  pass(ms, step = 50) {
    for (let n = 0; n < ms; n += step) {
      this.rig.pass(step);
      this.take();
    }
  }

  take() {
    const { rig } = this;
    this.left = Math.min(this.verbs, this.left + ((rig.now - this.at) / 1000) * this.verbsPerSecond);
    this.at = rig.now;
    for (const verb of rig.sent()) {
      this.left -= 1;
      assert.ok(this.left >= 0, `the gateway refuses verb ${this.sent.length + 1}`);
      this.sent.push(verb);
      if (verb.action === "subscribe") rig.subscribed(verb);
      else rig.push({ type: verb.action === "ping" ? "pong" : "unsubscribed", ref: verb.ref, topic: verb.topic });
    }
  }
}

const actions = (verbs) => verbs.filter(({ action }) => action !== "ping").map(({ action, topic }) => `${action} ${topic}`);

test("300 topics that are followed and left within a turn are never sent", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  rig.take();
  for (let n = 0; n < 300; n += 1) tab.follow(`list.${n}`, {}).unsubscribe();
  assert.deepEqual(rig.asked(), []);
  tab.follow("list.1", {});
  assert.deepEqual(actions(rig.asked()), ["subscribe list.1"]);
});

test("a topic that is left and followed again in a turn, many times, is left and followed once", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  let { unsubscribe } = tab.follow("news.world", {});
  rig.obey();
  for (let n = 0; n < 300; n += 1) {
    unsubscribe();
    ({ unsubscribe } = tab.follow("news.world", {}));
  }
  assert.deepEqual(actions(rig.asked()), ["unsubscribe news.world", "subscribe news.world"]);
});

test("300 pairs, each in a turn of its own, are sent at a pace that the gateway takes, and what is followed in the end is", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const gateway = new Allowance(rig);
  for (let n = 0; n < 300; n += 1) {
    const { unsubscribe } = tab.follow(`list.${n}`, {});
    gateway.pass(2, 2);
    unsubscribe();
    gateway.pass(2, 2);
  }
  const subscribed = [];
  for (const topic of ["list.7", "news.world"]) tab.follow(topic, { onSubscribed: () => subscribed.push(topic) });
  gateway.pass(500);
  assert.deepEqual(subscribed, ["list.7", "news.world"]);
  assert.deepEqual(actions(gateway.sent.slice(-4)).slice(-2), ["subscribe list.7", "subscribe news.world"]);
  const held = new Set();
  for (const { action, topic } of gateway.sent) {
    if (action === "subscribe") held.add(topic);
    else held.delete(topic);
  }
  assert.deepEqual([...held], ["list.7", "news.world"]);
});

test("of 600 topics 128 are followed, the others are refused with what to do; nothing is sent for them, and one that is left makes room", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const gateway = new Allowance(rig);
  const refused = [];
  const followed = Array.from({ length: 600 }, (_, n) => tab.follow(`list.${n}`, { onError: (error) => refused.push(error) }));
  gateway.pass(1000);
  assert.equal(actions(gateway.sent).length, TOPICS);
  assert.deepEqual([refused.length, refused[0].topic, refused[0].code, refused[0].temporary], [600 - TOPICS, "list.128", 106, false]);
  assert.match(refused[0].message, /128 topics .* unsubscribe from one first/);
  followed[0].unsubscribe();
  tab.follow("list.128", { onError: (error) => refused.push(error) });
  gateway.pass(1000);
  assert.deepEqual(actions(gateway.sent).slice(TOPICS), ["unsubscribe list.0", "subscribe list.128"]);
  assert.equal(refused.length, 600 - TOPICS);
});

test("what a tab follows and asks is sent at a pace that the gateway takes on the next connection, too", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  for (let n = 0; n < TOPICS; n += 1) tab.follow(`list.${n}`, {});
  for (let n = 0; n < 256; n += 1) tab.ask({ action: "history", topic: `list.${n % TOPICS}` }).catch(() => {});
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  const gateway = new Allowance(rig);
  gateway.pass(40_000);
  assert.equal(actions(gateway.sent).length, TOPICS + 256);
});

test("after a gateway's error for too many verbs they come as slowly as it takes them", () => {
  const rig = new Rig({ random: () => 0 }).connect();
  const { tab } = rig.tab("a");
  for (let n = 0; n < 100; n += 1) tab.follow(`list.${n}`, {});
  assert.equal(rig.asked().length, 100);
  rig.push({ type: "error", ref: null, code: 111, reason: "too many requests", temporary: true });
  const counts = [0, 0, 0, 0].map(() => {
    rig.pass(1000);
    return rig.asked().filter(({ action }) => action === "subscribe").length;
  });
  assert.deepEqual(counts, [8, 8, 8, 8]);
});

const LIMITS_PING = { action: "ping", limits: true };

test("a gateway is asked for its limits before anything waits, and what waits goes at the pace that it tells", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  tab.follow("news.world", {});
  assert.deepEqual(rig.sent().map(({ action }) => action), ["subscribe"]);
  for (let n = 0; n < 300; n += 1) tab.ask({ action: "history", topic: "news.world" }).catch(() => {});
  const sent = rig.sent();
  assert.deepEqual([sent.length, sent.at(-1)], [Math.floor(0.8 * VERBS), LIMITS_PING]);
  rig.push({ type: "pong", limits: { topics: 128, verbs: 256, verbs_per_second: 20 } });
  const counts = [0, 0].map(() => {
    rig.pass(1000);
    return rig.asked().length;
  });
  assert.deepEqual(counts, [16, 16]);
});

test("it is asked where half of the topics that it may allow are followed, once on each connection", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const pings = () => rig.sent().filter(({ limits }) => limits);
  for (let n = 0; n < 64; n += 1) tab.follow(`list.${n}`, {});
  assert.deepEqual(pings(), []);
  tab.follow("list.64", {});
  assert.deepEqual(pings(), [LIMITS_PING]);
  rig.push({ type: "pong", limits: { topics: 66, verbs: 256, verbs_per_second: 10 } });
  const refused = [];
  for (const n of [65, 66]) tab.follow(`list.${n}`, { onError: ({ topic }) => refused.push(topic) });
  assert.deepEqual([pings(), refused], [[], ["list.66"]]);
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  assert.deepEqual(pings(), [LIMITS_PING]);
});

test("a gateway's own limits count where it tells them", () => {
  const rig = new Rig().connect();
  rig.push({ type: "pong", limits: { topics: 3, verbs: 10, verbs_per_second: 2 } });
  const { tab } = rig.tab("a");
  const refused = [];
  for (let n = 0; n < 4; n += 1) tab.follow(`list.${n}`, { onError: ({ code }) => refused.push(code) });
  assert.deepEqual([refused, rig.asked().length], [[106], 3]);
  for (let n = 0; n < 20; n += 1) tab.ask({ action: "history", topic: "list.0" }).catch(() => {});
  assert.equal(rig.asked().length, 5);
});

test("a gateway that takes one verb at a time is sent one after the other, and all in the end", () => {
  const rig = new Rig().connect();
  rig.push({ type: "pong", limits: { topics: 128, verbs: 1, verbs_per_second: 1 } });
  const { tab } = rig.tab("a");
  const gateway = new Allowance(rig, 1, 1);
  for (const topic of ["news.a", "news.b", "news.c"]) tab.follow(topic, {});
  gateway.pass(5000);
  assert.deepEqual(actions(gateway.sent), ["subscribe news.a", "subscribe news.b", "subscribe news.c"]);
});

test("a topic is left while a token is awaited, too", () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const { unsubscribe } = tab.follow("news.world", {});
  rig.obey();
  rig.tab("b", () => new Promise(() => {})).tab.hello();
  unsubscribe();
  assert.deepEqual(actions(rig.asked()), ["unsubscribe news.world"]);
});
