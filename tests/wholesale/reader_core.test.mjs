import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Backoff,
  Board,
  Delays,
  STATES,
  closeAdvice,
  delayText,
  identityOf,
  isTopic,
  nextState,
  parseChoice,
  parseEndpoints,
  parsePush,
  safeUrl,
  storyView,
  transportsFrom,
  waitAfterLoss,
} from "../../wholesale/pages/reader-core.js";

const BASE = "http://127.0.0.1/";
let made = 0;

/** A message push; each has an identity of its own unless `id` is given. */
function message(fields = {}) {
  made += 1;
  const id = `01890000-0000-7000-8000-${String(made).padStart(12, "0")}`;
  return { id, topic: "news.breaking", key: "k", version: 1, published: made, body: {}, ...fields };
}

const shown = (board) => board.newest().map((story) => [story.message.key, story.message.version]);

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

test("the range of a close code says whether to come back", () => {
  const codes = [1006, 1012, 3000, 4000, 4099, 4100, 4199, 4200, 4299, 4300];
  const advice = ["back off", "back off", "back off", "stop", "stop", "back off", "back off", "now", "now", "back off"];
  assert.deepEqual(codes.map(closeAdvice), advice);
});

test("waits double up to the cap, with full jitter", () => {
  const backoff = new Backoff();
  const bounds = Array.from({ length: 8 }, () => backoff.next(1));
  assert.deepEqual(bounds, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
  assert.equal(backoff.next(0), 0);
  assert.equal(backoff.next(0.5), 15000);
});

test("a connection that was stable for a minute starts afresh", () => {
  const backoff = new Backoff();
  backoff.next(1);
  assert.equal(backoff.next(1, 59_999), 1000);
  assert.equal(backoff.next(1, 60_000), 500);
});

test("a stop code is final, and so is a gateway that says so", () => {
  assert.equal(waitAfterLoss({ code: 4003, openFor: 9999 }, new Backoff(), 1), null);
  const notice = { code: 4100, reconnect: false };
  assert.equal(waitAfterLoss({ code: 1006, notice }, new Backoff(), 1), null);
});

test("the disconnect push counts when a proxy has eaten the close frame", () => {
  const notice = { code: 4200, reconnect: true, retry_after_ms: 700 };
  assert.equal(waitAfterLoss({ code: 1006, notice, openFor: 5000 }, new Backoff(), 1), 700);
});

test("retry_after_ms is a floor under the backoff", () => {
  const notice = { code: 1012, reconnect: true, retry_after_ms: 2000 };
  assert.equal(waitAfterLoss({ code: 1012, notice, openFor: 5000 }, new Backoff(), 1), 2500);
});

test("at once is not for connections that end as soon as they are open", () => {
  assert.equal(waitAfterLoss({ code: 4200, openFor: 5000 }, new Backoff(), 1), 0);
  assert.equal(waitAfterLoss({ code: 4200, openFor: 10 }, new Backoff(), 1), 500);
});

test("only transports that exist can be asked for", () => {
  assert.deepEqual(transportsFrom("?transports=xhr-polling, websocket,carrier-pigeon"), ["websocket", "xhr-polling"]);
  assert.deepEqual(transportsFrom(""), []);
});

test("only http and https URLs are links", () => {
  assert.equal(safeUrl("https://news.example/a", BASE), "https://news.example/a");
  assert.equal(safeUrl("/a", BASE), "http://127.0.0.1/a");
  for (const bad of ["javascript:alert(1)", "data:text/html,x", "http://", 7, null]) {
    assert.equal(safeUrl(bad, BASE), null);
  }
});

test("endpoints are taken in their order, and what can't be used is left out", () => {
  const answer = {
    region: "oregon",
    gateways: [{ sockjs_url: "http://127.0.0.1:1/sockjs" }, {}, { sockjs_url: "ftp://x/" }],
    alternates: [{ region: "dublin", endpoints_url: "http://127.0.0.1:2/endpoints.json" }, null],
    retry_ms: 1500,
  };
  assert.deepEqual(parseEndpoints(answer, BASE), {
    region: "oregon",
    gateways: ["http://127.0.0.1:1/sockjs"],
    alternates: [{ region: "dublin", url: "http://127.0.0.1:2/endpoints.json" }],
    retryMs: 1500,
  });
  for (const junk of [null, 7, [], { gateways: {} }]) {
    assert.deepEqual(parseEndpoints(junk, BASE), { region: "", gateways: [], alternates: [], retryMs: 0 });
  }
});

test("what isn't a push is nothing", () => {
  for (const junk of ["", "{", "null", "7", "[]", '{"type":7}']) assert.equal(parsePush(junk), null);
  assert.deepEqual(parsePush('{"type":"pong"}'), { type: "pong" });
});

test("topics are dotted words", () => {
  for (const good of ["news", "news.breaking", "user.a_1-B"]) assert.ok(isTopic(good));
  for (const bad of ["", ".", "a..b", "news.*", "néws", "a b", "x".repeat(256), null]) assert.ok(!isTopic(bad));
});

test("a stored choice is kept as far as it makes sense", () => {
  const stored = JSON.stringify({ chosen: ["b", "x.y", "gone"], added: ["x.y", "x.y", "no good", "a"] });
  assert.deepEqual(parseChoice(stored, ["a", "b"]), { chosen: ["b", "x.y"], added: ["x.y"] });
  for (const junk of [null, "", "7", "{}", '{"chosen":7,"added":[]}']) {
    assert.deepEqual(parseChoice(junk, ["a", "b"]), { chosen: ["a", "b"], added: [] });
  }
});

test("copies of a message differ in the first 48 bits of the id alone", () => {
  const one = identityOf("01890000-0000-7abc-8def-0123456789ab");
  assert.equal(one, identityOf("01891111-2222-7abc-8def-0123456789ab"));
  assert.notEqual(one, identityOf("01890000-0000-7abc-8def-0123456789ac"));
});

test("a copy is shown once", () => {
  const board = new Board();
  const first = message();
  assert.equal(board.offer(first, true), "new");
  assert.equal(board.offer({ ...first, id: `01899999-9999${first.id.slice(13)}` }, true), "repeat");
  assert.equal(board.newest().length, 1);
});

test("a higher version replaces a lower one, never the reverse", () => {
  const board = new Board();
  assert.equal(board.offer(message({ version: 2 }), true), "new");
  assert.equal(board.offer(message({ version: 10 }), true), "updated");
  assert.equal(board.offer(message({ version: 9 }), true), "older");
  assert.deepEqual(shown(board), [["k", 10]]);
});

test("the same key in another topic is another story, and no key is a story each", () => {
  const board = new Board();
  board.offer(message(), true);
  board.offer(message({ topic: "news.world" }), true);
  board.offer(message({ key: null }), true);
  board.offer(message({ key: null }), true);
  assert.equal(board.newest().length, 4);
});

test("a story keeps its place while it is updated", () => {
  const board = new Board();
  board.offer(message({ key: "a", published: 1000 }), true);
  board.offer(message({ key: "b", published: 2000 }), true);
  board.offer(message({ key: "a", version: 2, published: 3000 }), true);
  assert.deepEqual(shown(board), [["b", 1], ["a", 2]]);
});

test("a rewound story takes the place of its newest version", () => {
  const board = new Board();
  board.offer(message({ key: "a", published: 1000 }), false);
  board.offer(message({ key: "b", published: 2000 }), false);
  board.offer(message({ key: "a", version: 2, published: 3000 }), false);
  assert.deepEqual(shown(board), [["a", 2], ["b", 1]]);
});

test("the board is bounded and keeps the newest", () => {
  const board = new Board(3);
  for (const key of ["a", "b", "c", "d", "e"]) board.offer(message({ key }), true);
  assert.deepEqual(shown(board).map(([key]) => key), ["e", "d", "c"]);
});

test("identities are bounded for each topic", () => {
  const board = new Board();
  for (let n = 0; n < 2000; n += 1) board.offer(message({ version: n }), true);
  assert.equal(board.seen.get("news.breaking").size, 512);
});

test("a topic that was left can be followed afresh", () => {
  const board = new Board();
  const kept = message({ topic: "news.world" });
  const left = message();
  board.offer(kept, true);
  board.offer(left, true);
  board.drop("news.breaking");
  assert.deepEqual(board.newest().map((story) => story.message), [kept]);
  assert.equal(board.offer(left, false), "new");
});

test("a story shows what its body has", () => {
  const body = {
    headline: "Tarn Bridge closed",
    summary: "Nobody hurt.",
    section: "Live",
    title: "River",
    lang: "en-GB",
    url: "https://news.example/t",
    posts: [{ at: "13:42", headline: "Hit", text: "A barge." }],
    text: "One.\n\nTwo.",
  };
  const view = storyView(message({ body, version: 4 }), BASE);
  assert.equal(view.headline, "Tarn Bridge closed");
  assert.equal(view.section, "Live · River");
  assert.equal(view.lang, "en-GB");
  assert.equal(view.version, 4);
  assert.deepEqual(view.paragraphs, [
    { lead: "13:42 · Hit", text: "A barge." },
    { lead: "", text: "One." },
    { lead: "", text: "Two." },
  ]);
});

test("scores, prices and temperatures are figures", () => {
  const figure = (body) => {
    const view = storyView(message({ body }), BASE);
    return [view.figure, view.detail, view.trend];
  };
  assert.deepEqual(figure({ score: "2–1", clock: "67′" }), ["2–1", "67′", ""]);
  assert.deepEqual(figure({ price: { value: 31204.5, change_percent: -0.4 } }), ["31,204.5", "−0.4 %", "down"]);
  assert.deepEqual(figure({ price: { value: 1, change_percent: 0 } }), ["1", "0 %", ""]);
  assert.deepEqual(figure({ price: 12 }), ["12", "", ""]);
  assert.deepEqual(figure({ temperature: -9 }), ["−9 °C", "", ""]);
  assert.deepEqual(figure({ score: {}, price: [], temperature: "warm" }), ["", "", ""]);
});

test("any body whatever has a headline and harms nobody", () => {
  const bodies = [null, undefined, 7, "hello", [], {}, { headline: {} }, { posts: [null, 7] }, { lang: ["en"] }];
  for (const body of bodies) {
    const view = storyView(message({ body }), BASE);
    assert.equal(typeof view.headline, "string");
    assert.notEqual(view.headline, "");
    assert.equal(view.url, null);
    assert.equal(view.lang, "");
  }
  assert.equal(storyView(message({ body: { headline: "x".repeat(9999) } }), BASE).headline.length, 300);
});

test("the delay is the median of the last ones", () => {
  const delays = new Delays(3);
  assert.equal(delays.median(), null);
  for (const ms of [900, 5, 7, 6]) delays.add(ms);
  assert.equal(delays.median(), 6);
});

test("a delay is written for people", () => {
  assert.deepEqual([null, 12, -3, 1400].map(delayText), ["–", "12 ms", "-3 ms", "1.4 s"]);
});
