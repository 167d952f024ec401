/** What the operations board decides, without a browser: `node --test tests/wholesale/frontdesk/pages/board.test.mjs`. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { mergedEvents, readDocument, readPlots } from "../../../../wholesale/frontdesk/pages/files/board-document.js";
import { layout, MAX_DRAWN, thickness } from "../../../../wholesale/frontdesk/pages/files/board-layout.js";
import { inWords, plotted } from "../../../../wholesale/frontdesk/pages/files/board-series.js";
import * as words from "../../../../wholesale/frontdesk/pages/files/board-words.js";

const box = (name, fields = {}) => ({ name, state: "ready", readers: 10, capacity: 100, ...fields });
const shovel = (fields = {}) => ({ name: "s", runs_on: "oregon/core", source: "oregon/client", state: "running", canary_age_ms: 400, messages_per_second: 5, restarts: 0, ...fields });
const region = (name, fields = {}) => ({
  name,
  frontdesk_url: `http://${name}.example:8080`,
  state: "well",
  clusters: [{ name: `${name}/client`, nodes: [] }, { name: `${name}/core`, nodes: [{ node: `${name}-core-1`, running: true, alarm: "" }] }],
  boxes: [box(`${name}-retail-1`)],
  ...fields,
});
const read = (...regions) => readDocument({ frontdesk: "f", region: "oregon", now_ms: 1, regions, events: [] });
const event = (seq) => ({ seq, at_ms: seq, region: "oregon", kind: "process_gone", who: "x", text: `event ${seq}` });

describe("a document", () => {
  it("that isn't one is refused", () => {
    for (const other of [null, 1, "x", [], {}, { regions: {} }, { regions: null }]) assert.throws(() => readDocument(other), TypeError);
  });

  it("needs nothing but regions", () => {
    assert.deepEqual(readDocument({ regions: [] }), { frontdesk: "", region: "", version: "", now_ms: 0, regions: [], events: [] });
    const [found] = readDocument({ regions: [null] }).regions;
    assert.deepEqual([found.name, found.boxes, found.totals.readers, found.totals.delay_p50_ms], ["", [], 0, null]);
  });

  it("has no number that isn't finite, and none below zero", () => {
    const [found] = read(region("oregon", { boxes: [box("b", { readers: -5, capacity: "60000", delay_p50_ms: NaN, delay_p99_ms: Infinity, deliveries_per_second: null })] })).regions;
    const { readers, capacity, delay_p50_ms: p50, delay_p99_ms: p99, deliveries_per_second: deliveries } = found.boxes[0];
    assert.deepEqual([readers, capacity, p50, p99, deliveries], [0, 0, null, null, 0]);
  });

  it("has an end everywhere", () => {
    const many = (count, make) => Array.from({ length: count }, (_, n) => make(n));
    const found = readDocument({
      frontdesk: "x".repeat(9999),
      regions: many(99, (n) => region(`r${n}`, { boxes: many(n ? 0 : 5000, (m) => box(`b${m}`)), services: many(999, (m) => ({ name: `s${m}` })), why: many(99, () => "why") })),
      events: many(999, event),
    });
    assert.deepEqual([found.frontdesk.length, found.regions.length, found.regions[0].boxes.length, found.regions[0].services.length, found.regions[0].why.length, found.events.length], [255, 32, 1000, 200, 16, 100]);
  });

  it("names each thing once, and puts retail-2 before retail-10", () => {
    const [found] = read(region("oregon", { boxes: [box("retail-10"), box("retail-2"), box("retail-2", { readers: 99 })] })).regions;
    assert.deepEqual(found.boxes.map(({ name, readers }) => [name, readers]), [["retail-2", 10], ["retail-10", 10]]);
  });

  it("loses the marks that would reorder what stands beside a name", () => {
    assert.equal(read(region("a\u202eb\u0000c")).regions[0].name, "a b c");
  });

  it("links to boards over http and https alone", () => {
    const url = (frontdesk_url) => read(region("oregon", { frontdesk_url })).regions[0].board_url;
    assert.equal(url("https://oregon.example/path?x#y"), "https://oregon.example/board");
    for (const bad of ["javascript:alert(1)", "data:text/html,x", "//x", "", null, "http://", "x".repeat(5000)]) assert.equal(url(bad), "");
  });

  it("has processes in states that are known", () => {
    const [found] = read(region("oregon", { state: "splendid", boxes: [box("a", { state: "\"><b>" })] })).regions;
    assert.deepEqual([found.state, found.boxes[0].state], ["troubled", "starting"]);
  });
});

describe("events", () => {
  it("that are newer are added, others known", () => {
    assert.deepEqual(mergedEvents([event(1), event(2)], [event(2), event(3)], false).map(({ seq }) => seq), [1, 2, 3]);
  });

  it("stay the same list when nothing is new", () => {
    const before = [event(1)];
    assert.equal(mergedEvents(before, [event(1)], false), before);
  });

  it("of a frontdesk that began anew replace those before", () => {
    assert.deepEqual(mergedEvents([event(70)], [event(1)], true).map(({ seq }) => seq), [1]);
  });

  it("are a hundred at most, the newest", () => {
    const all = Array.from({ length: 100 }, (_, n) => event(n + 1));
    assert.deepEqual(mergedEvents(all, [event(101)], false).map(({ seq }) => seq).slice(0, 2), [2, 3]);
  });
});

describe("words", () => {
  it("say numbers in three figures", () => {
    const shown = [0, 0.004, 0.3, 9.26, 44.71, 999, 999.9, 12_400, 4_310_000, 2e9].map(words.short);
    assert.deepEqual(shown, ["0", "<0.01", "0.3", "9.26", "44.7", "999", "1k", "12.4k", "4.31M", "2G"]);
  });

  it("say what isn't known with a dash", () => {
    assert.deepEqual([words.count(null), words.rate(null), words.delay(null), words.span(null)], ["–", "–", "–", "–"]);
  });

  it("say delays and ages", () => {
    assert.deepEqual([0.2, 8.4, 999, 1420].map(words.delay), ["<1 ms", "8 ms", "999 ms", "1.4 s"]);
    assert.deepEqual([900, 12_000, 180_000, 8_000_000, 2e8].map(words.span), ["0.9 s", "12 s", "3 min", "2 h", "2 days"]);
    assert.deepEqual([400, 4200, 70_000].map(words.ago), ["now", "4 s ago", "70 s ago"]);
  });

  it("link a figure to its metric", () => {
    assert.equal(words.metricOf("gateway_delay_seconds.p99"), "newsfabric_gateway_delay_seconds");
    assert.equal(words.metricOf("gateway_readers"), "newsfabric_gateway_readers");
    assert.equal(words.metricUrl('x"> <b>'), "/board/metrics#x%22%3E%20%3Cb%3E");
  });

  it("give a figure the unit its name tells", () => {
    assert.deepEqual([words.figure("store_write_seconds.p99", 0.0124), words.figure("gateway_outbox_bytes", 20_480), words.figure("gateway_closes.drain", 1.5), words.figure("x_y", -3)], ["12 ms", "20.5kB", "1.5", "-3"]);
    assert.deepEqual([1_797_206_400, -1, 1e18].map((value) => words.figure("tls_certificate_expiry_timestamp_seconds.server", value)), ["2026-12-14", "-1", "1000000000000000000"]);
  });

  it("call a shovel what its canaries say, not what RabbitMQ says", () => {
    const state = (fields) => words.shovelState(readDocument({ regions: [region("oregon", { shovels: [shovel(fields)] })] }).regions[0].shovels[0]);
    assert.deepEqual([{}, { canary_age_ms: 4000 }, { canary_age_ms: 10_001 }, { canary_age_ms: null }, { state: "terminated" }, { state: "unknown" }].map(state), ["fresh", "late", "silent", "unknown", "stopped", "unknown"]);
  });
});

describe("a shovel's rate", () => {
  it("is what keepers count, and a box's shovel is shown as uncounted", () => {
    assert.equal(words.shovelRate(shovel({ messages_per_second: 4.25 })), words.rate(4.25));
    assert.equal(words.shovelRate(shovel({ messages_per_second: null })), "not counted");
    assert.equal(words.shovelRate(shovel({ state: "unknown", messages_per_second: null })), "–");
  });
});

describe("the one sentence", () => {
  const verdict = (...regions) => words.verdict(read(...regions));

  it("says that all is well only if it is", () => {
    assert.deepEqual(verdict(region("oregon"), region("dublin")), { level: "good", text: "All is well" });
    assert.deepEqual(verdict(region("oregon", { boxes: [box("b", { state: "draining" })] })), { level: "warn", text: "All regions are well, with something to watch" });
  });

  it("names who is in trouble or away", () => {
    assert.equal(verdict(region("oregon", { state: "troubled" }), region("dublin")).text, "Trouble in oregon");
    assert.equal(verdict(region("oregon", { state: "troubled" }), region("dublin", { state: "away" })).text, "dublin is away, trouble in oregon");
  });

  it("says that nobody serves readers", () => {
    assert.equal(verdict().text, "No region is known yet");
    assert.equal(verdict(region("oregon", { boxes: [] })).text, "No box serves readers");
  });
});

describe("concerns", () => {
  const listed = (...regions) => words.concerns(read(...regions)).map(({ level, title, text }) => [level, title, text]);

  it("are what isn't as it should be, the worst first, each with its reason", () => {
    const found = listed(region("oregon", {
      state: "troubled",
      why: ["b2 is silent", "oregon/core/s brings nothing", "the store is away"],
      boxes: [box("b1", { state: "starting", waiting_for: ["its feeds"] }), box("b2", { state: "gone", age_ms: 12_000 })],
      clusters: [{ name: "oregon/core", nodes: [{ node: "n1", running: false }, { node: "n2", running: true, alarm: "disk" }] }],
      shovels: [shovel({ canary_age_ms: 12_000 }), shovel({ name: "t", canary_age_ms: 4000 })],
    }));
    assert.deepEqual(found, [
      ["bad", "the store is away", ""],
      ["bad", "n1", "not running"],
      ["bad", "b2", "silent for 12 s"],
      ["bad", "oregon/core/s", "no canary"],
      ["warn", "n2", "disk alarm"],
      ["warn", "b1", "starting: its feeds"],
      ["warn", "oregon/core/t", "canary 4.0 s old"],
    ]);
  });

  it("keep a cause that a process tells, though the process is listed too", () => {
    const why = "f1 reaches no node of oregon/core: it hears nobody";
    const found = listed(region("oregon", { state: "troubled", why: [why], services: [{ name: "f1", state: "starting" }] }));
    assert.deepEqual(found, [["bad", why, ""], ["warn", "f1", "starting"]]);
  });

  it("of a region that is well are to be watched", () => {
    const why = "server certificate ends on 2026-12-14: oregon-frontdesk-1";
    assert.deepEqual(listed(region("oregon", { why: [why] })), [["warn", why, ""]]);
    assert.equal(words.verdict(read(region("oregon", { why: [why] }))).level, "warn");
  });

  it("count silent shovels where there are many", () => {
    const shovels = ["a", "b", "c", "d"].map((name) => shovel({ name, canary_age_ms: 60_000 }));
    assert.deepEqual(listed(region("oregon", { state: "troubled", shovels })), [["bad", "4 shovels of oregon", "bring no canary"]]);
  });

  it("are not about those that left on a drain order", () => {
    const boxes = [box("a", { state: "gone", age_ms: 4000, left: true }), box("b", { state: "gone", age_ms: 4000, left: "yes" })];
    assert.deepEqual(listed(region("oregon", { boxes })), [["bad", "b", "silent for 4.0 s"]]);
  });

  it("of a region that is away are that it is away", () => {
    const found = listed(region("oregon", { state: "away", why: ["doesn't answer"], boxes: [box("b", { state: "gone" })] }));
    assert.deepEqual(found, [["bad", "oregon", "doesn't answer"]]);
  });
});

describe("totals", () => {
  it("are sums, and the slowest region's delay", () => {
    const totals = words.grandTotals(read(
      region("oregon", { totals: { readers: 3, boxes: 2, delay_p99_ms: 40 } }),
      region("dublin", { totals: { readers: 4, boxes: 1, delay_p99_ms: null } }),
    ).regions);
    assert.deepEqual([totals.readers, totals.boxes, totals.delay_p99_ms, totals.delay_p50_ms], [7, 3, 40, null]);
  });
});

describe("what is old", () => {
  const old = { age_ms: 40_000, state: "away", why: ["its frontdesk doesn't answer"], totals: { readers: 4, capacity: 100, boxes: 2, boxes_ready: 2, delay_p99_ms: 9 } };
  const regions = () => read(region("oregon", { totals: { readers: 3, capacity: 100, boxes: 2, boxes_ready: 1 } }), region("dublin", { ...old, shovels: [shovel()] })).regions;

  it("isn't in the totals, which say whom they lack", () => {
    const totals = words.grandTotals(regions());
    assert.deepEqual([totals.readers, totals.capacity, totals.boxes, totals.boxes_ready, totals.delay_p99_ms], [3, 100, 2, 1, null]);
    assert.equal(words.leftOut(regions()), "without dublin: not heard for 40 s");
    assert.equal(words.leftOut(regions().slice(0, 1)), "");
  });

  it("is left out before anybody calls the region away", () => {
    const [late] = read(region("dublin", { age_ms: 5001, totals: { readers: 4 } })).regions;
    assert.equal(words.grandTotals([late]).readers, 0);
  });

  it("of a region that is away says so of its boxes, nodes and shovels", () => {
    const [, dublin] = regions();
    assert.deepEqual([words.stateNow(dublin.boxes[0]), words.stateWords(dublin.boxes[0])], ["unheard", "not heard for 40 s"]);
    const [node] = dublin.clusters[1].nodes;
    assert.deepEqual([words.nodeState(node), words.nodeWords(node)], ["unheard", "not heard for 40 s"]);
    assert.deepEqual([words.shovelState(dublin.shovels[0]), dublin.shovels[0].canary_age_ms, words.shovelRate(dublin.shovels[0])], ["unknown", 40_400, "–"]);
  });

  it("is shown for one box and one node of a region that answers, and is no concern of its own", () => {
    const nodes = [{ node: "n1", running: true, alarm: "disk", age_ms: 6000 }, { node: "n2", running: true, alarm: "", age_ms: null }];
    const document = read(region("oregon", { age_ms: 1000, boxes: [box("a", { age_ms: 4500 }), box("b", { age_ms: 3900 }), box("c", { state: "gone", age_ms: 9000 })], clusters: [{ name: "oregon/core", nodes }] }));
    const [{ boxes, clusters }] = document.regions;
    assert.deepEqual(boxes.map(words.stateNow), ["unheard", "ready", "gone"]);
    assert.deepEqual(clusters[0].nodes.map(words.nodeWords), ["not heard for 7.0 s", "running"]);
    assert.deepEqual(words.concerns(document).map(({ title }) => title), ["c"]);
  });
});

describe("retries", () => {
  it("wait longer and longer, at random, never for nothing and never over 15 s", () => {
    assert.deepEqual([0, 1, 3, 4, 50].map((attempt) => words.retryMs(attempt, 1)), [1000, 2000, 8000, 15_000, 15_000]);
    assert.deepEqual([0, 50].map((attempt) => words.retryMs(attempt, 0)), [300, 300]);
  });
});

describe("the map", () => {
  const fabric = (count, boxes) => read(...Array.from({ length: count }, (_, n) => region(`r${n}`, {
    boxes: Array.from({ length: boxes }, (_, m) => box(`r${n}-retail-${m}`)),
    shovels: [
      shovel({ name: "a", runs_on: `r${n}/core`, source: `r${n}/client` }),
      shovel({ name: "b", runs_on: `r${n}/core`, source: `r${(n + 1) % count}/core` }),
      ...Array.from({ length: boxes }, (_, m) => shovel({ name: "postoffice.1", runs_on: `r${n}-retail-${m}`, source: `r${n}/core` })),
    ],
  })));
  const inside = (part, { width, height }) => part.x >= 0 && part.y >= 0 && part.x + part.width <= width + 0.01 && part.y + part.height <= height + 0.01;

  for (const [count, boxes, width] of [[1, 0, 320], [1, 1, 320], [2, 40, 1400], [2, 40, 360], [3, 7, 900], [6, 1000, 2500]]) {
    it(`keeps ${count} regions of ${boxes} boxes within ${width} px`, () => {
      const made = layout(fabric(count, boxes), width);
      assert.equal(made.regions.length, count);
      for (const part of [...made.regions, ...made.clusters, ...made.boxes]) assert.ok(inside(part, made), JSON.stringify(part));
      for (const { path } of made.shovels) assert.doesNotMatch(path, /NaN|Infinity/);
    });
  }

  it("draws every shovel of clusters and boxes it knows", () => {
    assert.equal(layout(fabric(2, 40), 1400).shovels.length, 2 * (2 + 40));
  });

  it("mirrors the left one of a pair, so that clusters face each other", () => {
    const { clusters, boxes } = layout(fabric(2, 1), 1200);
    const x = (found, region) => found.find((each) => each.region === region).x;
    assert.ok(x(boxes, "r0") < x(clusters, "r0"));
    assert.ok(x(clusters, "r0") < x(clusters, "r1"));
    assert.ok(x(clusters, "r1") < x(boxes, "r1"));
  });

  it("of very many boxes draws those in trouble, and says how many it doesn't", () => {
    const boxes = Array.from({ length: 500 }, (_, n) => box(`b${n}`, { state: n === 499 ? "gone" : "ready" }));
    const made = layout(read(region("oregon", { boxes })), 1200);
    assert.equal(made.boxes.length, MAX_DRAWN);
    assert.equal(made.regions[0].hidden, 500 - MAX_DRAWN);
    assert.ok(made.boxes.some(({ key }) => key === "b499"));
  });

  it("leaves out a shovel whose ends nobody knows", () => {
    const made = layout(read(region("oregon", { shovels: [shovel({ runs_on: "x/y", source: "z" })] })), 1200);
    assert.deepEqual(made.shovels, []);
  });

  it("shows a cluster that only its shovels tell of", () => {
    const made = layout(read(region("oregon", { clusters: [], shovels: [shovel()] })), 1200);
    assert.deepEqual(made.clusters.map(({ key }) => key), ["oregon/core"]);
  });

  it("draws more messages thicker, within bounds", () => {
    assert.deepEqual([null, 0, 1e12].map(thickness), [1.2, 1, 5]);
    assert.ok(thickness(100) > thickness(10));
  });
});

describe("plots", () => {
  const regions = {
    oregon: { at_ms: [5000, 10_000], series: { readers: [1, 2], "closes.drain": [3, null], "closes.went_away": [1, 1] } },
    dublin: { at_ms: [10_400, 15_200], series: { readers: [7, null], "closes.drain": [5, 5] } },
  };
  const found = readPlots({ every_ms: 5000, regions });
  const lines = (made, title) => made.plots.find((plot) => plot.title === title).lines.map(({ label, points }) => [label, points]);

  it("that aren't any are refused", () => {
    for (const other of [null, {}, { every_ms: 0, regions }]) assert.throws(() => readPlots(other), TypeError);
  });

  it("stand on one axis, whenever each region counted", () => {
    const made = plotted(found, "", ["oregon", "dublin"]);
    assert.deepEqual(made.seconds, [5, 10, 15]);
    assert.deepEqual(lines(made, "Readers"), [["oregon", [1, 2, null]], ["dublin", [null, 7, null]]]);
  });

  it("add closes of all regions up by reason, the commonest first", () => {
    assert.deepEqual(lines(plotted(found, "", ["oregon", "dublin"]), "Closes by reason"), [["drain", [3, 5, 5]], ["went away", [1, 1, null]]]);
  });

  it("of one region keep its colour", () => {
    const [line] = plotted(found, "dublin", ["oregon", "dublin"]).plots[0].lines;
    assert.deepEqual([line.label, line.hue], ["dublin", 1]);
  });

  it("of an hour are 720 points, however far clocks jump", () => {
    const jumped = readPlots({ every_ms: 5000, regions: { oregon: { at_ms: [0, 1.7e12], series: { readers: [1, 2] } } } });
    assert.equal(plotted(jumped, "", ["oregon"]).seconds.length, 720);
  });

  it("are nothing when nothing is known", () => {
    assert.deepEqual(plotted(readPlots({ every_ms: 5000, regions: {} }), "", []).seconds, []);
  });

  it("are described in words", () => {
    const [readers] = plotted(found, "oregon", ["oregon"]).plots;
    assert.equal(inWords(readers), "Readers, the last hour: oregon now 2, from 1 to 2");
  });
});
