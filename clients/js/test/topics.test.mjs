import assert from "node:assert/strict";
import { test } from "node:test";

import { identityText } from "../src/seen.ts";
import { Rig, idOf } from "./support.mjs";

const rigWith = (options) => new Rig(options).connect();

/** A subscription of `tab`, with its events in lists. */
function follow(tab, topic, options = {}) {
  const heard = { messages: [], gaps: 0, subscribed: [], errors: [], marks: [] };
  heard.subscription = tab.follow(topic, {
    onMessage: (message) => heard.messages.push(message.body),
    onGap: () => (heard.gaps += 1),
    onSubscribed: ({ resumed, recovered }) => heard.subscribed.push([resumed, recovered]),
    onError: ({ code, temporary }) => heard.errors.push([code, temporary]),
    onMark: (mark) => heard.marks.push(mark),
    ...options,
  });
  return heard;
}

const message = (topic, n, position = `p${n}`) => ({ type: "message", topic, id: idOf({ n, at: 1000 + n }), position, body: n });
const refuse = (rig, verb, code, temporary = false) =>
  rig.push({ type: "error", ref: verb.ref, topic: verb.topic, code, reason: "because", temporary });

test("a topic is subscribed as the page asked, and then from where it was", () => {
  const rig = rigWith();
  const { tab } = rig.tab("a");
  const heard = follow(tab, "news.world", { rewind: 20 });
  const [verb] = rig.sent();
  assert.deepEqual(verb, { action: "subscribe", topic: "news.world", rewind: 20, ref: verb.ref });
  rig.subscribed(verb);
  rig.push(message("news.world", 7));
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  const [again] = rig.asked();
  assert.deepEqual(again, { action: "subscribe", topic: "news.world", position: "p7", ref: again.ref });
  rig.subscribed(again, { recovered: true, position: "p7" });
  rig.push(message("news.world", 7));
  rig.push(message("news.world", 8));
  assert.deepEqual(heard.messages, [7, 8]);
  assert.deepEqual(heard.subscribed, [[false, false], [true, true]]);
  assert.equal(heard.gaps, 0);
  assert.equal(heard.subscription.position, "p8");
});

test("`since` is where an earlier page was, and the missing messages since are reported", () => {
  const rig = rigWith();
  const heard = follow(rig.tab("a").tab, "t", { since: "p3" });
  const [verb] = rig.sent();
  assert.equal(verb.position, "p3");
  rig.subscribed(verb, { recovered: false });
  assert.equal(heard.gaps, 1);
});

test("a position that the fabric refuses is reported as a gap, and the topic begun anew", () => {
  const rig = rigWith();
  const heard = follow(rig.tab("a").tab, "t", { since: "nonsense" });
  refuse(rig, rig.sent()[0], 112);
  const [verb] = rig.sent();
  assert.deepEqual(verb, { action: "subscribe", topic: "t", ref: verb.ref });
  rig.subscribed(verb);
  assert.deepEqual([heard.gaps, heard.errors], [1, []]);
});

test("a refusal that is temporary is tried again a little later", () => {
  const rig = rigWith();
  const heard = follow(rig.tab("a").tab, "t");
  refuse(rig, rig.sent()[0], 100, true);
  assert.deepEqual(heard.errors, [[100, true]]);
  rig.pass(2999);
  assert.deepEqual(rig.asked(), []);
  rig.pass(1);
  assert.equal(rig.asked()[0].topic, "t");
});

test("a refusal is final where nothing can mend it", () => {
  const rig = rigWith();
  const heard = follow(rig.tab("a").tab, "t");
  refuse(rig, rig.sent()[0], 103);
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  assert.deepEqual(heard.errors, [[103, false]]);
  assert.deepEqual(rig.asked(), []);
});

test("a topic for those who are logged in is asked for again after the login, on the same connection", async () => {
  const rig = rigWith();
  const { tab } = rig.tab("a");
  const heard = follow(tab, "user.42");
  refuse(rig, rig.sent()[0], 101);
  assert.deepEqual(heard.errors, [[101, false]]);
  const reply = tab.ask({ action: "login", token: "T" });
  const [login] = rig.sent();
  assert.deepEqual(login, { action: "login", token: "T", ref: login.ref });
  rig.push({ type: "logged_in", ref: login.ref, user: "42", expires_at: null });
  assert.equal((await reply).user, "42");
  assert.equal(rig.sent()[0].topic, "user.42");
});

test("a gateway too busy to say to whom is asked again what it left unanswered", () => {
  const rig = rigWith();
  const { tab, heard } = rig.tab("a");
  follow(tab, "t");
  const [first] = rig.sent();
  rig.push({ type: "error", ref: null, code: 111, reason: "too many requests", temporary: true });
  rig.pass(3000);
  const [verb] = rig.asked();
  assert.equal(verb.topic, "t");
  assert.equal(heard.filter(([event]) => event === "error").length, 1);
  rig.subscribed(first);
  refuse(rig, verb, 105);
  rig.push(message("t", 1));
  assert.deepEqual(rig.asked(), []);
});

/** A topic that is live, and a second subscription to it that is about to be served. */
function withNewcomer() {
  const rig = rigWith();
  const { tab } = rig.tab("a");
  follow(tab, "t");
  rig.obey();
  follow(tab, "t", { rewind: 5 });
  const [ping] = rig.sent();
  rig.push({ type: "pong", ref: ping.ref });
  return rig;
}

test("a newcomer begins again when a gateway in a hurry left unread what it needs", () => {
  const rig = withNewcomer();
  assert.equal(rig.sent().length, 4);
  rig.push({ type: "error", ref: null, code: 111, reason: "too many requests", temporary: true });
  rig.pass(5000);
  const [again] = rig.asked();
  assert.deepEqual([again.action, again.position], ["subscribe", "p0"]);
  rig.subscribed(again, { recovered: true });
  const { ref } = rig.sent().find(({ action, ref }) => action === "ping" && ref);
  rig.push({ type: "pong", ref });
  assert.deepEqual(rig.sent().map(({ action, rewind }) => [action, rewind]).slice(0, 2), [["unsubscribe", undefined], ["subscribe", 5]]);
});

test("where a gateway left unread that a newcomer leaves the topic, it is subscribed anew from where it was", () => {
  const rig = withNewcomer();
  const [leave, newcomer, , goOn] = rig.sent();
  rig.push({ type: "unsubscribed", ref: leave.ref, topic: "t" });
  rig.subscribed(newcomer, { position: "p9" });
  rig.push({ type: "error", ref: null, code: 111, reason: "too many requests", temporary: true });
  refuse(rig, goOn, 105);
  rig.pass(300);
  assert.deepEqual(rig.asked().map(({ action, position }) => [action, position]), [["unsubscribe", undefined], ["subscribe", "p0"]]);
});

test("a new leader that reads an old note of a tab late goes by the newer one", () => {
  for (const isOpen of [false, true]) {
    const rig = isOpen ? rigWith() : new Rig();
    const interest = { key: "b/1", topic: "t", position: null, rewind: null };
    rig.do("note", { t: "follow", interest });
    rig.do("note", { t: "hello", interests: [{ ...interest, position: "p7" }], token: false });
    if (!isOpen) rig.connect();
    const positions = [];
    for (let verbs = rig.sent(); verbs.length; verbs = rig.sent()) {
      for (const verb of verbs) {
        if (verb.action === "subscribe") positions.push(verb.position);
        if (verb.action === "subscribe") rig.subscribed(verb, { recovered: true });
        else rig.push({ type: verb.action === "ping" ? "pong" : "unsubscribed", ref: verb.ref, topic: verb.topic });
      }
    }
    assert.ok(positions.includes("p7"), `${isOpen} ${positions}`);
  }
});

test("a newcomer is served, and a topic is left, though a gateway in a hurry didn't read the first word of it", () => {
  const rig = rigWith();
  const { tab } = rig.tab("a");
  const { subscription } = follow(tab, "left");
  follow(tab, "t");
  rig.obey();
  follow(tab, "t", { rewind: 5 });
  subscription.unsubscribe();
  assert.deepEqual(rig.sent().map(({ action }) => action), ["ping", "unsubscribe"]);
  rig.push({ type: "error", ref: null, code: 111, reason: "too many requests", temporary: true });
  rig.pass(2999);
  rig.push({ type: "pong" });
  rig.pass(2100);
  const [ping, leave] = rig.asked();
  assert.deepEqual([ping.action, leave.action, leave.topic], ["ping", "unsubscribe", "left"]);
  rig.push({ type: "pong", ref: ping.ref });
  rig.push({ type: "unsubscribed", ref: leave.ref, topic: "left" });
  assert.deepEqual(rig.sent().map(({ rewind }) => rewind), [undefined, 5, undefined, undefined]);
});

test("a push that arrives before a tab's request does not answer that request", () => {
  const rig = rigWith();
  const { tab } = rig.tab("a");
  follow(tab, "t");
  rig.obey();
  rig.push(message("t", 1));
  const [late] = rig.notes.splice(0).filter(({ t }) => t === "push");
  const heard = [];
  const subscription = tab.follow("t", { rewind: 5, onMessage: ({ body }) => heard.push(body) });
  tab.note(late);
  assert.deepEqual([heard, subscription.position], [[], null]);
});

test("so it is with a login, which comes first, and with what a page asked", async () => {
  const rig = rigWith();
  const { tab, heard } = rig.tab("a");
  const login = tab.ask({ action: "login", token: "T" });
  follow(tab, "user.42");
  const history = tab.ask({ action: "history", topic: "news.world" });
  const first = rig.sent();
  rig.push({ type: "error", ref: null, code: 111, reason: "too many requests", temporary: true });
  rig.pass(3000);
  const again = rig.asked();
  assert.deepEqual(again.map(({ action }) => action), ["login", "subscribe", "history"]);
  assert.deepEqual([again[0], again[2]], [first[0], first[2]]);
  for (let n = 0; n < 2; n += 1) rig.push({ type: "logged_in", ref: again[0].ref, user: "42", expires_at: null });
  rig.push({ type: "history", ref: again[2].ref, topic: "news.world", messages: [], more: false });
  assert.equal((await login).user, "42");
  assert.equal((await history).more, false);
  rig.subscribed(again[1]);
  rig.pass(3500);
  assert.deepEqual(rig.asked(), []);
  assert.equal(heard.filter(([event]) => event === "error").length, 1);
});

test("a bad token that was read twice is reported once", async () => {
  const rig = rigWith();
  const { tab, heard } = rig.tab("a", "bad");
  tab.hello();
  await new Promise((resolve) => setImmediate(resolve));
  rig.push({ type: "error", ref: null, code: 111, reason: "too many requests", temporary: true });
  rig.pass(3000);
  const login = rig.asked().find(({ action }) => action === "login");
  for (let n = 0; n < 2; n += 1) rig.push({ type: "error", ref: login.ref, code: 101, reason: "invalid token", temporary: false });
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(heard.filter(([event]) => event === "error").map(([, { code }]) => code), [111, 101]);
});

test("two tabs have one subscription, and the last to leave ends it", () => {
  const rig = rigWith();
  const [a, b] = [rig.tab("a").tab, rig.tab("b").tab];
  const first = follow(a, "t");
  rig.subscribed(rig.sent()[0]);
  const second = follow(b, "t");
  rig.obey();
  rig.push(message("t", 1));
  assert.deepEqual([first.messages, second.messages], [[1], [1]]);
  first.subscription.unsubscribe();
  assert.deepEqual(rig.sent(), []);
  rig.do("note", { t: "bye", tab: "b" });
  assert.deepEqual(rig.sent().map(({ action, topic }) => [action, topic]), [["unsubscribe", "t"]]);
});

test("a message says which one it is, as its publisher's receipt does", () => {
  const rig = rigWith();
  const heard = [];
  rig.tab("a").tab.follow("t", { onMessage: ({ id, identity }) => heard.push([id, identity]) });
  rig.subscribed(rig.sent()[0]);
  const id = "01a1fd8f-fd96-79d0-baa7-ac79215815ab";
  rig.push({ type: "message", topic: "t", id, body: 1, position: "p1" });
  assert.deepEqual(heard, [[id, "2743aa7ac79215815ab"]]);
});

test("marks of other devices are reported once", () => {
  const rig = rigWith();
  const heard = follow(rig.tab("a").tab, "user.42");
  rig.subscribed(rig.sent()[0]);
  const id = idOf({ n: 1, at: 1000 });
  for (let n = 0; n < 2; n += 1) rig.push({ type: "dismissed", topic: "user.42", id, at: 5, position: "p9" });
  rig.push({ type: "read", topic: "user.42", id, at: 6, position: "p10" });
  assert.deepEqual(heard.marks, [
    { topic: "user.42", id, identity: identityText(id), mark: "dismiss", at: 5 },
    { topic: "user.42", id, identity: identityText(id), mark: "read", at: 6 },
  ]);
});

test("a page's faulty handler harms no other", () => {
  const rig = rigWith();
  const { tab } = rig.tab("a");
  const faults = [];
  globalThis.reportError = (error) => faults.push(error.message);
  follow(tab, "t", {
    onMessage: () => {
      throw new Error("the page's");
    },
  });
  const other = follow(tab, "t");
  rig.obey();
  rig.push(message("t", 1));
  assert.deepEqual(other.messages, [1]);
  assert.deepEqual(faults, ["the page's"]);
});

test("whatever is pushed, nothing but messages of topics that are followed reaches the page", () => {
  const rig = rigWith();
  const heard = follow(rig.tab("a").tab, "t");
  rig.subscribed(rig.sent()[0]);
  const junk = [{ type: "message" }, { type: "message", topic: "other", id: "x" }, { type: "message", topic: "t", id: 7 }, { type: "t" }];
  for (const push of [...junk, { type: "subscribed", ref: "nobody's" }, { type: "dismissed", topic: "t" }]) rig.push(push);
  assert.deepEqual(heard.messages, []);
});
