import assert from "node:assert/strict";
import { test } from "node:test";

import { FabricError } from "../src/api.ts";
import { Rig } from "./support.mjs";

const settled = () => new Promise((resolve) => setImmediate(resolve));
const loggedIn = (rig, ref, expiresAt = null) => rig.push({ type: "logged_in", ref, user: "42", expires_at: expiresAt });
const refuse = (rig, { ref, topic }, code, temporary = false) => rig.push({ type: "error", ref, topic, code, reason: "because", temporary });
const errors = (heard) => heard.filter(([event]) => event === "error").map(([, { code }]) => code);

/** A rig with one tab that has `token`, connected, and its first verbs. */
async function withToken(token, options) {
  const rig = new Rig(options);
  const { tab, heard } = rig.tab("a", token);
  tab.hello();
  tab.follow("user.42", {});
  rig.connect();
  await settled();
  return { rig, tab, heard };
}

test("the login is the first word of each connection, and topics follow", async () => {
  const { rig, heard } = await withToken("T");
  const [login, subscribe] = rig.sent();
  assert.deepEqual([login.action, login.token], ["login", "T"]);
  assert.equal(subscribe.topic, "user.42");
  loggedIn(rig, login.ref);
  assert.deepEqual(heard.filter(([event]) => event === "login"), [["login", { user: "42", expiresAt: null }]]);
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  assert.deepEqual(rig.asked().map(({ action }) => action), ["login", "subscribe"]);
});

test("while the page's function makes a token nothing is asked that needs it; not for ever", async () => {
  const { rig } = await withToken(() => new Promise(() => {}));
  assert.deepEqual(rig.sent(), []);
  rig.pass(5000);
  assert.ok(rig.asked().some(({ topic }) => topic === "user.42"));
});

test("a function that fails is reported, and topics are asked for without", async () => {
  const { rig, heard } = await withToken(() => Promise.reject(new Error("no session")));
  assert.deepEqual(errors(heard), [101]);
  assert.deepEqual(rig.sent().map(({ action }) => action), ["subscribe"]);
});

test("a token is renewed before it runs out, on the same connection", async () => {
  const tokens = ["first", "second"];
  const { rig } = await withToken(() => tokens.shift());
  loggedIn(rig, rig.sent()[0].ref, rig.now + 100_000);
  const refreshes = [];
  for (let n = 0; n < 95; n += 1) {
    rig.pass(1000);
    rig.push({ type: "pong" });
    await settled();
    refreshes.push(...rig.asked().filter(({ action }) => action === "refresh"));
  }
  assert.deepEqual(refreshes.map(({ token }) => token), ["second"]);
  rig.push({ type: "refreshed", ref: refreshes[0].ref, user: "42", expires_at: rig.now + 100_000 });
  assert.equal(rig.session.state, "open");
});

test("a connection that ended because its token had run out begins with another token", async () => {
  const tokens = ["first", "second"];
  const { rig } = await withToken(() => tokens.shift());
  loggedIn(rig, rig.sent()[0].ref);
  rig.pass(2000);
  rig.push({ type: "disconnect", code: 4202, reason: "token expired", reconnect: true, retry_after_ms: 0 });
  rig.do("closed", { code: 4202 });
  rig.pass(1);
  rig.connectAgain();
  await settled();
  assert.equal(rig.asked().find(({ action }) => action === "login").token, "second");
});

test("a token that is refused is tried once, and the page learns it", async () => {
  const { rig, heard } = await withToken("bad");
  const [login, subscribe] = rig.sent();
  rig.push({ type: "error", ref: login.ref, code: 101, reason: "invalid token", temporary: false });
  rig.subscribed(subscribe);
  await settled();
  assert.deepEqual(errors(heard), [101]);
  assert.deepEqual(rig.sent(), []);
  assert.equal(rig.session.state, "open");
});

for (const [what, token] of [["a string", "T"], ["a function that has one in store", () => "T"]]) {
  test(`a token that is refused for the moment is sent again: ${what}`, async () => {
    const { rig, heard } = await withToken(token);
    const [login, subscribe] = rig.sent();
    refuse(rig, login, 100, true);
    refuse(rig, subscribe, 101);
    await settled();
    assert.ok(errors(heard).includes(100));
    rig.pass(3000);
    const [again] = rig.asked();
    assert.deepEqual([again.action, again.token], ["login", "T"]);
    refuse(rig, again, 100, true);
    rig.do("closed", { code: 1006 });
    rig.pass(1000);
    rig.connectAgain();
    await settled();
    const [next, topic] = rig.asked();
    assert.deepEqual([next.action, next.token], ["login", "T"]);
    refuse(rig, next, 100, true);
    refuse(rig, topic, 101);
    rig.pass(3000);
    loggedIn(rig, rig.asked()[0].ref);
    assert.deepEqual(rig.asked().map((verb) => verb.topic), ["user.42"]);
    rig.pass(2500);
    assert.deepEqual(rig.asked(), []);
  });
}

test("a login of the page's own that is refused for the moment is reported, and goes on", async () => {
  const rig = new Rig().connect();
  const { tab, heard } = rig.tab("a");
  const asked = tab.ask({ action: "login", token: "T" });
  refuse(rig, rig.sent().at(-1), 100, true);
  await assert.rejects(asked, { code: 100, temporary: true });
  rig.pass(3000);
  const [again] = rig.asked();
  assert.deepEqual([again.action, again.token], ["login", "T"]);
  loggedIn(rig, again.ref);
  assert.deepEqual(heard.filter(([event]) => event === "login"), [["login", { user: "42", expiresAt: null }]]);
});

test("a login of the page's own says how it went", async () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const bad = tab.ask({ action: "login", token: "bad" });
  rig.push({ type: "error", ref: rig.sent().at(-1).ref, code: 109, reason: "token expired", temporary: false });
  await assert.rejects(bad, (error) => error instanceof FabricError && error.code === 109);
  const good = tab.ask({ action: "login", token: "good" });
  loggedIn(rig, rig.sent().at(-1).ref, 7);
  assert.deepEqual(await good, { type: "logged_in", user: "42", expires_at: 7 });
});

test("who is refused as somebody else stays who it was, also on the next connection", async () => {
  const { rig, tab } = await withToken("mine");
  loggedIn(rig, rig.sent()[0].ref);
  const other = tab.ask({ action: "login", token: "other's" });
  rig.push({ type: "error", ref: rig.sent().at(-1).ref, code: 101, reason: "logged in as somebody else", temporary: false });
  await assert.rejects(other, { code: 101 });
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  assert.equal(rig.asked()[0].token, "mine");
});

test("who tries the same token twice, refused for the moment and then for good, stays who it was as well", async () => {
  const { rig, tab } = await withToken("mine");
  loggedIn(rig, rig.sent()[0].ref);
  for (const [code, temporary] of [[100, true], [101, false]]) {
    const other = tab.ask({ action: "login", token: "other's" });
    refuse(rig, rig.sent().at(-1), code, temporary);
    await assert.rejects(other, { code });
  }
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  assert.equal(rig.asked()[0].token, "mine");
});

test("a mark waits for a connection and is sent again on the next, until it is answered", async () => {
  const rig = new Rig();
  const { tab } = rig.tab("a");
  const marked = tab.ask({ action: "dismiss", topic: "user.42", id: "i" });
  rig.connect();
  assert.equal(rig.sent().at(-1).action, "dismiss");
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  const again = rig.asked().at(-1);
  rig.push({ type: "marked", ref: again.ref, topic: "user.42", id: "i", mark: "dismiss" });
  assert.equal((await marked).mark, "dismiss");
});

test("at most 256 requests wait for a connection", async () => {
  const rig = new Rig();
  const { tab } = rig.tab("a");
  for (let n = 0; n < 256; n += 1) tab.ask({ action: "ack", topic: "user.42", id: `${n}` }).catch(() => {});
  await assert.rejects(tab.ask({ action: "ack", topic: "user.42", id: "one more" }), { code: 111, temporary: true });
});

test("what a closed page still asked is answered: by a refusal", async () => {
  const rig = new Rig();
  const { tab } = rig.tab("a");
  const asked = tab.ask({ action: "history", topic: "t" });
  tab.close();
  await assert.rejects(asked, { code: 0 });
});

/** A function that makes tokens on demand, and the questions that it was asked. */
function slowly() {
  const asked = [];
  return { asked, token: () => new Promise((resolve, reject) => asked.push({ resolve, reject })) };
}

test("a token that was asked for on an earlier connection isn't sent on the next, which asks again", async () => {
  const { asked, token } = slowly();
  const { rig } = await withToken(token);
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  await settled();
  assert.equal(asked.length, 2);
  asked[0].resolve("stale");
  await settled();
  assert.deepEqual(rig.asked(), []);
  asked[1].resolve("fresh");
  await settled();
  assert.deepEqual(rig.asked().map(({ action, token }) => [action, token]), [["login", "fresh"], ["subscribe", undefined]]);
});

test("nor is one that was asked for by another tab's connection, which had asked as often", async () => {
  const { asked, token } = slowly();
  const { tab } = await withToken(token, { random: () => 0.25 });
  const next = new Rig({ random: () => 0.75 });
  const { tab: same } = next.tab("a", token);
  same.hello();
  next.connect();
  await settled();
  assert.equal(asked.length, 2);
  const sent = [];
  const { tab: first } = new Rig().tab("a", token, (note) => sent.push(note));
  first.note({ t: "token?", question: 1.25 });
  asked[2].resolve("stale");
  await settled();
  next.do("note", sent[0]);
  assert.deepEqual([sent[0].token, next.asked()], ["stale", []]);
  asked[1].resolve("fresh");
  await settled();
  assert.deepEqual(next.asked().map(({ token }) => token), ["fresh"]);
  tab.close();
});

test("a page that logs in itself meanwhile is not logged in by the token it was asked for before", async () => {
  const { asked, token } = slowly();
  const { rig, tab } = await withToken(token);
  tab.ask({ action: "login", token: "own" });
  asked[0].resolve("stale");
  await settled();
  assert.deepEqual(rig.asked().filter(({ action }) => action === "login").map(({ token }) => token), ["own"]);
});

test("a tab that has no token leaves the question to the others", async () => {
  const { asked, token } = slowly();
  const { rig } = await withToken(token);
  const { tab, heard } = rig.tab("b", token);
  tab.hello();
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  await settled();
  asked[2].reject(new Error("no session here"));
  await settled();
  assert.deepEqual(errors(heard), [101]);
  asked[1].resolve("fresh");
  await settled();
  assert.deepEqual(rig.asked().map(({ action }) => action), ["subscribe", "login"]);
});

test("of two logins each hears what became of its own", async () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const first = tab.ask({ action: "login", token: "mine" });
  const second = tab.ask({ action: "login", token: "other's" });
  const [one, two] = rig.sent();
  loggedIn(rig, one.ref);
  refuse(rig, two, 101);
  assert.equal((await first).user, "42");
  await assert.rejects(second, { code: 101 });
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  assert.equal(rig.asked()[0].token, "mine");
});

test("a login that was sent on a connection which is lost has the answer of the one that is sent on the next", async () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const both = ["old", "new"].map((token) => tab.ask({ action: "login", token }));
  rig.do("closed", { code: 1006 });
  rig.pass(1000);
  rig.connectAgain();
  const [sent] = rig.asked();
  assert.equal(sent.token, "new");
  loggedIn(rig, sent.ref);
  assert.deepEqual((await Promise.all(both)).map(({ user }) => user), ["42", "42"]);
});

test("a device whose clock is ahead renews its token less and less often, not each second", async () => {
  let made = 0;
  const { rig } = await withToken(() => `token ${(made += 1)}`);
  const ends = () => rig.now - 3_600_000;
  loggedIn(rig, rig.sent()[0].ref, ends());
  for (let n = 0; n < 300; n += 1) {
    rig.pass(1000);
    rig.push({ type: "pong" });
    await settled();
    for (const { action, ref } of rig.asked()) if (action === "refresh") rig.push({ type: "refreshed", ref, user: "42", expires_at: ends() });
  }
  assert.ok(made > 6 && made < 14, `${made} tokens in five minutes`);
});

/** The tokens that are sent in a minute in which the gateway refuses each for good, and when, in s. */
async function refusedForAMinute(rig) {
  const begun = rig.now;
  const sent = [];
  for (let n = 0; n < 6000; n += 1) {
    for (const { action, ref, token } of rig.asked()) {
      if (action !== "login") continue;
      sent.push([Math.round((rig.now - begun) / 1000), token]);
      refuse(rig, { ref }, 101);
    }
    await settled();
    rig.push({ type: "pong" });
    rig.pass(10);
  }
  return sent;
}

test("a page whose function makes tokens that are all refused learns it, and is asked less and less often", async () => {
  let made = 0;
  const { rig, heard } = await withToken(() => `T${(made += 1)}`);
  const sent = await refusedForAMinute(rig);
  assert.deepEqual(sent.map(([, token]) => token), ["T1", "T2", "T3", "T4", "T5", "T6", "T7"]);
  assert.deepEqual(sent.map(([at]) => at), [0, 0, 1, 3, 7, 15, 31]);
  assert.deepEqual(errors(heard), [101, 101, 101, 101, 101, 101]);
});

test("two tabs with a token each that is no good don't take turns at saying it", async () => {
  const { rig } = await withToken("A");
  const other = rig.tab("b", "B");
  other.tab.hello();
  const sent = await refusedForAMinute(rig);
  assert.deepEqual(sent.map(([, token]) => token), ["A", "B", "A", "B", "A", "B", "A"]);
});
