/** Impossible options are refused at once, with a reason. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { connect } from "../src/index.ts";
import { HOME, Rig } from "./support.mjs";

const ENDPOINTS = "http://r/endpoints.json";

test("options that don't exist, and values that can't be meant, are refused with what there is", () => {
  const wrong = [
    [{}, /^endpoints: the URL/],
    [{ endpoints: [] }, /^endpoints: the URL/],
    [{ endpoint: ENDPOINTS }, /^endpoints: the URL/],
    [{ endpoints: ENDPOINTS, Token: "T" }, /no option "Token"; there are endpoints, token, transports, /],
    [{ endpoints: ENDPOINTS, toString: 1 }, /no option "toString"/],
    [{ endpoints: [ENDPOINTS, 7] }, /"endpoints" is the URL/],
    [{ endpoints: ENDPOINTS, transports: ["websockets"] }, /"transports" is a list of some of websocket, xhr-streaming/],
    [{ endpoints: ENDPOINTS, transports: [] }, /"transports" is/],
    [{ endpoints: ENDPOINTS, heartbeat: { seen: 3000 } }, /"heartbeat" is \{visible, hidden\}, in ms/],
    [{ endpoints: ENDPOINTS, share: "no" }, /"share" is true or false/],
    [{ endpoints: "/endpoints.json", WebSocket: class {} }, /\/endpoints.json is no URL, and there is no page/],
  ];
  for (const [options, words] of wrong) assert.throws(() => connect(options), { name: "TypeError", message: words });
});

test("what a subscription can't mean is refused, a pattern with what to do instead", () => {
  const fabric = connect({ endpoints: ENDPOINTS, token: null, transports: undefined });
  const wrong = [
    [7, {}, /a topic is a string/],
    ["news.*", {}, /news\.\*: readers follow topics, not patterns\. Subscribe to each by its name/],
    ["news.#", {}, /not patterns/],
    ["t", { onmessage: () => {} }, /no option "onmessage"; there are since, rewind, onMessage, /],
    ["t", { onMessage: "show" }, /"onMessage" is a function/],
    ["t", { rewind: "5 minutes" }, /"rewind" is a number of messages, or how long ago, like "5m"/],
    ["t", { rewind: -1 }, /"rewind" is/],
    ["t", { since: 7 }, /"since" is the position of a subscription/],
  ];
  for (const [topic, options, words] of wrong) assert.throws(() => fabric.subscribe(topic, options), { name: "TypeError", message: words });
  assert.doesNotThrow(() => fabric.subscribe("t", { since: null, rewind: "5m", onMessage: undefined }));
});

test("history of a pattern is refused as well", async () => {
  await assert.rejects(connect({ endpoints: ENDPOINTS }).history("news.#"), { message: /not patterns/ });
});

test("a URL that is none of an endpoints.json is an error with words, reported once, and the reason for which the page waits", () => {
  const rig = new Rig({ urls: [HOME] });
  const { heard } = rig.tab("a");
  const answers = [{ url: HOME, ms: 5, endpoints: null, wrong: "HTTP 404" }];
  rig.do("start");
  rig.do("discovered", answers);
  rig.pass(1000);
  rig.do("discovered", answers);
  const errors = heard.filter(([event]) => event === "error").map(([, { code, message, temporary }]) => [code, message, temporary]);
  assert.deepEqual(errors, [[0, `endpoints: ${HOME}: HTTP 404`, false]]);
  assert.equal(rig.states().at(-1), "waiting");
  assert.equal(rig.session.details.reason, `${HOME}: HTTP 404`);
});

test("unsubscribe() can be awaited: until the gateway has heard of it, or there is none to tell", async () => {
  const rig = new Rig().connect();
  const { tab } = rig.tab("a");
  const [first, second] = [tab.follow("t", {}), tab.follow("t", {})];
  rig.obey();
  await second.unsubscribe();
  let isLeft = false;
  const left = first.unsubscribe().then(() => (isLeft = true));
  const [verb] = rig.asked();
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([verb.action, isLeft], ["unsubscribe", false]);
  rig.push({ type: "unsubscribed", ref: verb.ref, topic: "t" });
  await left;
  await first.unsubscribe();
  await tab.follow("never sent", {}).unsubscribe();
  const lost = tab.follow("lost", {});
  rig.obey();
  const lostLeft = lost.unsubscribe();
  rig.do("closed", { code: 1006 });
  await lostLeft;
  const closed = tab.follow("closed", {});
  tab.close();
  await closed.unsubscribe();
});
