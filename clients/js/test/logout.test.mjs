/** The login is the browser's: it outlives the tab that made it, ends in all, and takes nothing along that needs none. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Rig } from "./support.mjs";

const settled = () => new Promise((resolve) => setImmediate(resolve));
const accept = (rig, { ref }, user, expiresAt = null) => rig.push({ type: "logged_in", ref, user, expires_at: expiresAt });
const tokenOf = (sub) => `e30.${Buffer.from(JSON.stringify({ sub })).toString("base64url")}.signed`;
const logouts = (heard) => heard.filter(([event]) => event === "logout").map(([, logout]) => logout);
const words = (verbs) => verbs.map(({ action, topic, token }) => [action, topic ?? token]);

/** A session with one tab that follows a public topic and the user's own, logged in as 42 with `token`. */
async function loggedIn(token = "T") {
  const rig = new Rig();
  const { tab, heard } = rig.tab("a", token);
  const refused = [];
  tab.hello();
  tab.follow("news.world", {});
  tab.follow("user.42", { onError: ({ code }) => refused.push(code) });
  rig.connect();
  await settled();
  const [login, ...topics] = rig.asked();
  accept(rig, login, "42");
  for (const verb of topics) rig.subscribed(verb);
  return { rig, tab, heard, refused };
}

const REVOKED = { type: "disconnect", code: 4001, reason: "the user was revoked", reconnect: false, retry_after_ms: 0 };

test("a revocation ends the login, says so, and public topics go on without it", async () => {
  const { rig, heard, refused } = await loggedIn();
  rig.push(REVOKED);
  rig.do("closed", { code: 4001 });
  assert.equal(rig.session.state, "waiting");
  assert.deepEqual(logouts(heard), [{ user: "42", reason: "the user was revoked", code: 4001 }]);
  rig.pass(1000);
  rig.connectAgain();
  const [world, own, ...more] = rig.asked();
  assert.deepEqual([words([world, own]), more], [[["subscribe", "news.world"], ["subscribe", "user.42"]], []]);
  assert.equal(world.position, "p0");
  rig.push({ type: "error", ref: own.ref, topic: "user.42", code: 101, reason: "log in", temporary: false });
  assert.deepEqual([refused, rig.session.details.user ?? null], [[101], null]);
});

test("a function is not asked for a token again after a revocation, until the page logs in", async () => {
  let made = 0;
  const { rig, tab } = await loggedIn(() => `T${(made += 1)}`);
  rig.push(REVOKED);
  rig.do("closed", { code: 4001 });
  rig.pass(1000);
  rig.connectAgain();
  await settled();
  assert.deepEqual([made, rig.asked().map(({ action }) => action)], [1, ["subscribe", "subscribe"]]);
  const again = tab.ask({ action: "login", token: "new" });
  const [login] = rig.asked();
  accept(rig, login, "42");
  assert.equal((await again).user, "42");
});

test("a gateway that stops a page which sent no token is obeyed", () => {
  const rig = new Rig().connect();
  rig.push(REVOKED);
  rig.do("closed", { code: 4001 });
  assert.equal(rig.session.state, "stopped");
});

test("logout() makes all tabs nobody, on another connection", async () => {
  const { rig, tab, heard } = await loggedIn();
  const { tab: other, heard: otherHeard } = rig.tab("b", "T");
  other.hello();
  rig.take();
  tab.logOut();
  assert.deepEqual(rig.take().map((effect) => effect.do), ["hangup", "discover"]);
  const out = [{ user: "42", reason: "logged out", code: 0 }];
  assert.deepEqual([logouts(heard), logouts(otherHeard)], [out, out]);
  rig.connectAgain();
  await settled();
  assert.deepEqual(words(rig.asked()), [["subscribe", "news.world"], ["subscribe", "user.42"]]);
  assert.deepEqual([tab.token, other.token], [null, null]);
});

test("who logs in as somebody else is logged out first, and then is that, on another connection", async () => {
  const { rig, tab, heard } = await loggedIn(tokenOf("42"));
  const other = tab.ask({ action: "login", token: tokenOf("7") });
  assert.deepEqual(rig.take().map((effect) => effect.do), ["hangup", "discover"]);
  rig.connectAgain();
  const [login] = rig.asked();
  assert.deepEqual([login.action, login.token], ["login", tokenOf("7")]);
  accept(rig, login, "7");
  assert.equal((await other).user, "7");
  assert.deepEqual(heard.filter(([event]) => event.startsWith("log")).map(([event, { user }]) => [event, user]), [["login", "42"], ["logout", "42"], ["login", "7"]]);
});

test("the same user's newer token goes over the same connection", async () => {
  const { rig, tab } = await loggedIn(tokenOf("42"));
  tab.ask({ action: "login", token: `${tokenOf("42")}2` });
  assert.deepEqual(rig.asked().map(({ action }) => action), ["refresh"]);
});

test("a token that runs out is a lost login, and a newer one makes it a login again", async () => {
  const tokens = ["first", "second"];
  const { rig, heard } = await loggedIn(() => tokens.shift());
  rig.do("closed", { code: 4202, reason: "token expired" });
  assert.deepEqual(logouts(heard), [{ user: "42", reason: "token expired", code: 4202 }]);
  rig.pass(1000);
  rig.connectAgain();
  await settled();
  assert.deepEqual(words(rig.asked())[0], ["login", "second"]);
});

test("a login outlives the tab that made it", async () => {
  const sent = [];
  const { rig } = await loggedIn();
  const { tab: other } = rig.tab("b", null, (note) => sent.push(note));
  rig.do("note", { t: "hello", interests: [], token: false });
  other.hello();
  const next = new Rig().connect();
  for (const note of sent) next.do("note", note);
  assert.deepEqual(words(next.asked()), [["login", "T"]]);
});

test("but not a logout: a new leader goes by what the tab knows last", async () => {
  const sent = [];
  const { rig, tab } = await loggedIn();
  const { tab: other } = rig.tab("b", null, (note) => sent.push(note));
  rig.do("note", { t: "hello", interests: [], token: false });
  tab.logOut();
  other.hello();
  const next = new Rig().connect();
  for (const note of sent) next.do("note", note);
  assert.deepEqual(next.asked(), []);
});

test("a tab that missed the logout doesn't log in again whom the connection knows to be out", async () => {
  const { rig, tab } = await loggedIn();
  tab.logOut();
  rig.connectAgain();
  rig.take();
  rig.do("note", { t: "hello", interests: [], token: false, login: "T" });
  assert.deepEqual(rig.asked(), []);
});

test("who awaits a login hears that it was refused for good when the gateway closes for that", async () => {
  const { rig, tab } = await loggedIn();
  const asked = tab.ask({ action: "login", token: "fifth bad one" });
  rig.push(REVOKED);
  rig.do("closed", { code: 4001 });
  await assert.rejects(asked, { code: 101, message: "the user was revoked" });
});
