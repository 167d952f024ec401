import assert from "node:assert/strict";
import { test } from "node:test";

import {
  HeadlineBoard,
  RecentDelays,
  delayText,
  isTopic,
  parseChoice,
  routedMs,
  safeUrl,
  storyView,
  transportsFrom,
} from "../../../../wholesale/frontdesk/pages/files/reader-core.js";

const BASE = "http://127.0.0.1/";
let made = 0;

/** A message push; each has an identity of its own unless `id` is given. */
function message(fields = {}) {
  made += 1;
  const id = `01890000-0000-7000-8000-${String(made).padStart(12, "0")}`;
  return { id, topic: "news.breaking", key: "k", version: 1, published: made, body: {}, ...fields };
}

const shown = (board) => board.newest().map((story) => [story.message.key, story.message.version]);

test("only transports that exist can be asked for", () => {
  const known = ["websocket", "xhr-streaming", "xhr-polling"];
  assert.deepEqual(transportsFrom("?transports=xhr-polling, websocket,carrier-pigeon", known), ["websocket", "xhr-polling"]);
  assert.equal(transportsFrom("", known), undefined);
  assert.equal(transportsFrom("?transports=carrier-pigeon", known), undefined);
});

test("only http and https URLs are links", () => {
  assert.equal(safeUrl("https://news.example/a", BASE), "https://news.example/a");
  assert.equal(safeUrl("/a", BASE), "http://127.0.0.1/a");
  for (const bad of ["javascript:alert(1)", "data:text/html,x", "http://", 7, null]) {
    assert.equal(safeUrl(bad, BASE), null);
  }
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

test("a higher version replaces a lower one, never the reverse", () => {
  const board = new HeadlineBoard();
  assert.equal(board.offer(message({ version: 2 }), true), "new");
  assert.equal(board.offer(message({ version: 10 }), true), "updated");
  assert.equal(board.offer(message({ version: 9 }), true), "older");
  assert.deepEqual(shown(board), [["k", 10]]);
});

test("the same key in another topic is another story, and no key is a story each", () => {
  const board = new HeadlineBoard();
  board.offer(message(), true);
  board.offer(message({ topic: "news.world" }), true);
  board.offer(message({ key: null }), true);
  board.offer(message({ key: null }), true);
  assert.equal(board.newest().length, 4);
});

test("a story keeps its place while it is updated", () => {
  const board = new HeadlineBoard();
  board.offer(message({ key: "a", published: 1000 }), true);
  board.offer(message({ key: "b", published: 2000 }), true);
  board.offer(message({ key: "a", version: 2, published: 3000 }), true);
  assert.deepEqual(shown(board), [["b", 1], ["a", 2]]);
});

test("a rewound story takes the place of its newest version", () => {
  const board = new HeadlineBoard();
  board.offer(message({ key: "a", published: 1000 }), false);
  board.offer(message({ key: "b", published: 2000 }), false);
  board.offer(message({ key: "a", version: 2, published: 3000 }), false);
  assert.deepEqual(shown(board), [["a", 2], ["b", 1]]);
});

test("a version that comes twice is no update; one of a story without versions is", () => {
  const board = new HeadlineBoard();
  const updates = () => board.newest().map((story) => story.updates);
  board.offer(message({ key: "a", version: 1 }), true);
  board.offer(message({ key: "a", version: 1 }), true);
  assert.deepEqual(updates(), [1]);
  board.offer(message({ key: "a", version: 2 }), true);
  assert.deepEqual(updates(), [2]);
  board.drop("news.breaking");
  board.offer(message({ key: "b", version: null }), true);
  board.offer(message({ key: "b", version: null }), true);
  assert.deepEqual(updates(), [2]);
});

test("a story takes its direction from its own language, or else from its text", () => {
  const dirs = ["ar", "he-IL", "fa", "ur", "az-Arab", "en-GB", "az", "ja", "", "no language", "en-x", 7].map((lang) => storyView(message({ body: { lang } }), BASE).dir);
  assert.deepEqual(dirs, ["rtl", "rtl", "rtl", "rtl", "rtl", "ltr", "ltr", "ltr", "auto", "auto", "auto", "auto"]);
});

test("the board is bounded and keeps the newest", () => {
  const board = new HeadlineBoard(3);
  for (const key of ["a", "b", "c", "d", "e"]) board.offer(message({ key }), true);
  assert.deepEqual(shown(board).map(([key]) => key), ["e", "d", "c"]);
});

test("a topic that was left can be followed afresh", () => {
  const board = new HeadlineBoard();
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
  const delays = new RecentDelays(3);
  assert.equal(delays.median(), null);
  for (const ms of [900, 5, 7, 6]) delays.add(ms);
  assert.equal(delays.median(), 6);
});

test("a delay counts from the router, whatever the publisher says", () => {
  assert.equal(routedMs(message({ id: "018cc251-f400-7000-8000-000000000001", published: 5 })), 0x018cc251f400);
  for (const id of [undefined, "", 7, "018cc251", "018CC251-f400-7000-8000-000000000001"]) {
    assert.ok(Number.isNaN(routedMs(message({ id }))), String(id));
  }
});

test("a delay is written for people", () => {
  assert.deepEqual([null, 12, -3, 1400].map(delayText), ["–", "12 ms", "-3 ms", "1.4 s"]);
});
