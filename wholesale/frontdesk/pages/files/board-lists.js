/** The parts besides the map and the plots: totals, concerns, regions with boxes and services, shovels, events. */

import { byId, el, Keyed, metricLink, roving, setAttribute, setHidden, setShare, setText } from "./board-dom.js";
import { ago, concerns, count, delay, grandTotals, isOld, leftOut, METRICS, OLD_MS, own, rate, share, SHOVEL_WORDS, shovelRate, shovelState, span, stateNow, stateWords, verdict } from "./board-words.js";

/** @import {BoardDocument, BoardEvent, Box, Busy, Region, Service, Shovel} from "./board-document.js" */
/** @import {Concern} from "./board-words.js" */

/** @typedef {(kind: "box" | "service" | "cluster" | "shovel", key: string) => void} Open */

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MAX_CONCERNS = 12;

/* ---- The one sentence, and what is behind it ------------------------------------------------------ */

export class Head {
  /** @param {Open} open */
  constructor(open) {
    this.verdict = byId("verdict");
    this.more = byId("concerns-more");
    this.concerns = new Keyed(
      byId("concerns"),
      (/** @type {Concern} */ { kind, about }) => {
        const name = el("b");
        const words = el("span");
        const button = el("button", { type: "button" }, name, words);
        button.addEventListener("click", () => openConcern(open, kind, about));
        return { root: el("li", {}, button), name, words };
      },
      (view, { title, level, text }) => {
        setText(view.name, title);
        setText(view.words, text);
        setAttribute(view.root, "data-level", level);
      },
    );
    this.totals = /** @type {[keyof ReturnType<typeof grandTotals>, (value: number | null) => string][]} */ ([
      ["readers", count],
      ["messages_per_second", rate],
      ["deliveries_per_second", rate],
      ["connects_per_second", rate],
      ["delay_p50_ms", delay],
      ["delay_p99_ms", delay],
    ]);
  }

  /** @param {BoardDocument} document */
  update(document) {
    const { level, text } = verdict(document);
    setText(this.verdict, text);
    setAttribute(this.verdict, "data-level", level);
    const found = concerns(document);
    this.concerns.update(found.slice(0, MAX_CONCERNS), ({ key }) => key);
    setHidden(this.more, found.length <= MAX_CONCERNS);
    setText(this.more, `and ${found.length - MAX_CONCERNS} more, in the regions below`);
    const totals = grandTotals(document.regions);
    for (const [name, say] of this.totals) setText(byId(`total-${name}`), say(totals[name]));
    setText(byId("total-boxes"), `${totals.boxes_ready} of ${totals.boxes}`);
    setText(byId("total-capacity"), count(totals.capacity));
    setShare(byId("total-load"), share(totals.readers, totals.capacity));
    const without = leftOut(document.regions);
    setText(byId("totals-without"), without);
    setHidden(byId("totals-without"), !without);
  }
}

/** @param {Open} open @param {Concern["kind"]} kind @param {string} about */
function openConcern(open, kind, about) {
  if (kind === "shovel") open("shovel", about);
  else if (kind === "part") open("box", about);
  else if (kind === "region") byId(`region-${about}`).scrollIntoView();
  else {
    /** @type {HTMLDetailsElement} */ (byId("shovels")).open = true;
    byId("shovels").scrollIntoView();
  }
}

/* ---- Regions -------------------------------------------------------------------------------------- */

export class RegionList {
  /** @param {Open} open */
  constructor(open) {
    this.regions = new Keyed(
      byId("regions"),
      (/** @type {Region} */ region) => new RegionView(region, open),
      () => undefined,
    );
  }

  /** The regions there are. @param {BoardDocument} document @returns {(() => void)[]} what fills them, each on its own */
  steps({ regions }) {
    this.regions.update(regions, ({ name }) => name);
    return regions.map((region) => () => this.regions.views.get(region.name)?.fill(region));
  }
}

class RegionView {
  /** @param {Region} region @param {Open} open */
  constructor({ name }, open) {
    const template = /** @type {HTMLTemplateElement} */ (byId("template-of-region"));
    this.root = /** @type {HTMLElement} */ (template.content.cloneNode(true)).firstElementChild ?? el("section");
    /** @param {string} selector */
    this.part = (selector) => /** @type {HTMLElement} */ (this.root.querySelector(selector));
    this.root.id = `region-${name}`;
    const title = this.part("h2");
    title.textContent = name;
    title.id = `title-${name}`;
    this.root.setAttribute("aria-labelledby", title.id);
    const tiles = this.part(".tiles");
    tiles.setAttribute("aria-label", `Boxes of ${name}`);
    this.part(".columns > .scroll").setAttribute("aria-label", `Services of ${name}`);
    this.stop = roving(tiles, ".tile");
    this.boxes = new Keyed(tiles, (/** @type {Box} */ box) => tile(box, name, open), fillTile);
    this.services = new Keyed(this.part(".services tbody"), (/** @type {Service} */ service) => serviceRow(service, name, open), fillService);
    this.topics = busiest(this.part(".topics"), METRICS.routed);
    this.publishers = busiest(this.part(".publishers"), METRICS.routed);
  }

  /** @param {Region} region */
  fill(region) {
    setAttribute(this.root, "data-state", region.state);
    setText(this.part(".state"), region.state);
    setText(this.part(".why"), region.why.join("; "));
    const board = /** @type {HTMLAnchorElement} */ (this.part(".own-board"));
    setHidden(board, !region.board_url);
    setAttribute(board, "href", region.board_url);
    // The last that was heard may be all there is, but it isn't how things are.
    const was = isOld(region) ? `, ${ago(region.age_ms)}` : "";
    setText(this.part(".readers"), `${count(region.totals.readers)}${was}`);
    setText(this.part(".ready"), `${region.totals.boxes_ready} of ${region.totals.boxes}${was}`);
    setText(this.part(".p99"), delay(region.totals.delay_p99_ms));
    setHidden(this.part(".no-boxes"), region.boxes.length > 0);
    this.boxes.update(region.boxes, ({ name }) => name);
    this.stop();
    this.services.update(region.services, ({ name }) => name);
    this.topics(region.topics);
    this.publishers(region.publishers);
  }

  /** @param {number} age ms @param {string} since when it went away; empty while it is there */
  grow(age, since) {
    setAttribute(this.root, "data-old", String(age > OLD_MS));
    setText(this.part(".age"), since ? `away since ${since}, last heard ${ago(age)}` : age > OLD_MS ? `as of ${ago(age)}` : `${span(age)} old`);
  }
}

/** @param {RegionList} regions @param {BoardDocument} document @param {number} passed ms since the document came */
export function growOlder(regions, { regions: found, now_ms: now }, passed) {
  for (const { name, age_ms: age, state } of found) {
    const since = state === "away" ? timeOf(Math.max(0, now - age)) : "";
    regions.regions.views.get(name)?.grow(age + passed, since);
  }
}

/* ---- Boxes ---------------------------------------------------------------------------------------- */

/** @param {Box} box @param {string} region @param {Open} open */
function tile({ name }, region, open) {
  /** @param {string} className @param {string} metric */
  const value = (className, metric) => el("span", { class: className, title: metric });
  const parts = {
    state: el("span", { class: "tile-state" }),
    readers: value("tile-readers", METRICS.readers),
    capacity: value("tile-capacity", METRICS.capacity),
    bar: el("span", { class: "bar" }),
    deliveries: value("tile-rate", METRICS.deliveries_per_second),
    p50: value("tile-p50", METRICS.delay),
    p99: value("tile-p99", METRICS.delay),
    engine: el("span", { class: "tile-engine" }),
  };
  const unseen = (/** @type {string} */ words) => el("span", { class: "unseen" }, words);
  const button = el(
    "button",
    { type: "button", class: "tile", tabindex: "-1" },
    el("span", { class: "tile-top" }, el("b", {}, own(name, region)), parts.state),
    el("span", { class: "tile-load" }, parts.readers, unseen(" of "), parts.capacity, unseen(" readers")),
    parts.bar,
    el("span", { class: "tile-figures" }, parts.deliveries, unseen(" deliveries, delay "), parts.p50, el("span", { "aria-hidden": "true" }, "/"), unseen(" and "), parts.p99),
    parts.engine,
  );
  button.addEventListener("click", () => open("box", name));
  return { root: el("li", {}, button), button, ...parts };
}

/** @param {ReturnType<typeof tile>} view @param {Box} box */
function fillTile(view, box) {
  const state = stateNow(box);
  setAttribute(view.button, "data-state", state);
  setAttribute(view.button, "data-old", String(isOld(box)));
  setText(view.state, state);
  setText(view.readers, count(box.readers));
  setText(view.capacity, count(box.capacity));
  setShare(view.bar, share(box.readers, box.capacity));
  setText(view.deliveries, rate(box.deliveries_per_second));
  setText(view.p50, delay(box.delay_p50_ms));
  setText(view.p99, delay(box.delay_p99_ms));
  setText(view.engine, isOld(box) || box.state === "gone" || box.state === "left" || box.waiting_for.length ? stateWords(box) : `${box.engine} ${box.version}`);
}

/* ---- Services, topics, publishers ------------------------------------------------------------------ */

/** @param {Service} service @param {string} region @param {Open} open */
function serviceRow({ name }, region, open) {
  const button = el("button", { type: "button", class: "name" }, own(name, region));
  button.addEventListener("click", () => open("service", name));
  const [state, age, version, up] = [el("td"), el("td", { class: "figure" }), el("td"), el("td", { class: "figure" })];
  return { root: el("tr", {}, el("th", { scope: "row" }, button), state, up, version, age), state, age, version, up };
}

/** @param {ReturnType<typeof serviceRow>} view @param {Service} service */
function fillService(view, service) {
  const state = stateNow(service);
  setAttribute(view.root, "data-state", state);
  setAttribute(view.root, "data-old", String(isOld(service)));
  setText(view.state, state === "unheard" || service.waiting_for.length ? stateWords(service) : state);
  setText(view.age, span(service.age_ms));
  setText(view.version, service.version);
  setText(view.up, service.started_ms && now.ms > service.started_ms ? span(now.ms - service.started_ms) : "–");
}

/** The frontdesk's clock, by the newest document. */
export const now = { ms: 0 };

/** @param {HTMLElement} parent @param {string} metric @returns {(items: Busy[]) => void} */
function busiest(parent, metric) {
  const keyed = new Keyed(
    parent,
    (/** @type {Busy} */ { name }) => {
      const figure = metricLink(metric);
      const bar = el("span", { class: "bar" });
      return { root: el("li", {}, el("span", { class: "busy-name" }, name), figure, bar), figure, bar };
    },
    (view, { messages_per_second: found }) => setText(view.figure, rate(found)),
  );
  return (items) => {
    const sorted = [...items].sort((a, b) => b.messages_per_second - a.messages_per_second).slice(0, 8);
    const most = sorted[0]?.messages_per_second ?? 0;
    // By name, so that rows don't trade places each second when two are about as busy.
    keyed.update(sorted, ({ name }) => name);
    for (const item of sorted) setShare(/** @type {{bar: HTMLElement}} */ (keyed.views.get(item.name)).bar, share(item.messages_per_second, most));
    setHidden(/** @type {HTMLElement} */ (parent.parentElement), sorted.length === 0);
  };
}

/* ---- Shovels as a list ------------------------------------------------------------------------------ */

export class ShovelList {
  /** @param {Open} open */
  constructor(open) {
    this.details = /** @type {HTMLDetailsElement} */ (byId("shovels"));
    this.count = byId("shovels-count");
    /** @type {BoardDocument | null} */
    this.document = null;
    this.rows = new Keyed(
      byId("shovel-rows"),
      (/** @type {Shovel} */ { key, name }) => {
        const button = el("button", { type: "button", class: "name" }, name);
        button.addEventListener("click", () => open("shovel", key));
        const [way, state] = [el("td"), el("td")];
        const [age, found, restarts] = [METRICS.canary, METRICS.routed, METRICS.restarts].map((metric) => metricLink(metric));
        const cells = [age, found, restarts].map((link) => el("td", { class: "figure" }, /** @type {Node} */ (link)));
        return { root: el("tr", {}, el("th", { scope: "row" }, button), way, state, ...cells), way, state, age, rate: found, restarts };
      },
      (view, shovel) => {
        const state = shovelState(shovel);
        setAttribute(view.root, "data-shovel", state);
        setText(view.way, `${shovel.source} → ${shovel.runs_on}`);
        setText(view.state, SHOVEL_WORDS[state] ?? "");
        setText(/** @type {HTMLElement} */ (view.age), span(shovel.canary_age_ms));
        setText(/** @type {HTMLElement} */ (view.rate), shovelRate(shovel));
        setText(/** @type {HTMLElement} */ (view.restarts), count(shovel.restarts));
      },
    );
    this.details.addEventListener("toggle", () => this.document && this.update(this.document));
  }

  /** @param {BoardDocument} document */
  update(document) {
    this.document = document;
    const all = document.regions.flatMap(({ shovels }) => shovels);
    const silent = all.filter((each) => ["silent", "stopped"].includes(shovelState(each))).length;
    setText(this.count, `${all.length}${silent ? `, ${silent} of them silent` : ""}`);
    // Hundreds of rows cost a frame each second, and nobody sees them while it is closed.
    if (this.details.open) this.rows.update(all, ({ key }) => key);
  }
}

/* ---- Events ----------------------------------------------------------------------------------------- */

/** @type {Record<string, "bad" | "warn" | "good">} */
const LEVELS = {
  process_gone: "bad",
  shovel_silent: "bad",
  node_away: "bad",
  region_away: "bad",
  process_not_ready: "warn",
  box_draining: "warn",
  shovel_remade: "warn",
  process_back: "good",
  process_ready: "good",
  shovel_back: "good",
  node_back: "good",
  region_back: "good",
};
const ANNOUNCE_MS = 3000;

export class EventList {
  constructor() {
    this.empty = byId("no-events");
    this.announcer = byId("announcer");
    /** @type {BoardEvent[]} */
    this.unannounced = [];
    this.isFirst = true;
    this.last = 0;
    /** @type {ReturnType<typeof setTimeout> | null} */
    this.timer = null;
    this.rows = new Keyed(
      byId("events"),
      (/** @type {BoardEvent} */ { at_ms: at, region, kind, text }) => {
        const time = el("time", { datetime: instant(at) }, timeOf(at));
        const root = el("li", { "data-level": LEVELS[kind] ?? "warn" }, time, el("span", { class: "event-region" }, region), el("span", { class: "event-text" }, text));
        if (!this.isFirst) root.classList.add("fresh");
        return { root };
      },
      () => undefined,
    );
  }

  /** @param {BoardEvent[]} events oldest first */
  update(events) {
    const newest = events.at(-1)?.seq ?? 0;
    if (newest === this.last && !this.isFirst) return;
    if (!this.isFirst) this.#announce(events.filter(({ seq }) => seq > this.last));
    this.rows.update([...events].reverse(), ({ seq, at_ms: at }) => `${seq} ${at}`);
    setHidden(this.empty, events.length > 0);
    this.last = newest;
    this.isFirst = false;
  }

  /** A screen reader hears of new events, some at once: never of numbers. @param {BoardEvent[]} fresh */
  #announce(fresh) {
    this.unannounced = [...this.unannounced, ...fresh].slice(-100);
    this.timer ??= setTimeout(() => {
      this.timer = null;
      const latest = this.unannounced.slice(-3).map(({ region, text }) => `${region}: ${text}`);
      const more = this.unannounced.length - latest.length;
      this.unannounced = [];
      this.announcer.textContent = latest.join(". ") + (more > 0 ? `. And ${more} more events.` : ".");
    }, ANNOUNCE_MS);
  }
}

const calendar = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const LAST_TIME = 8.64e15;

/** @param {number} ms @returns {string} empty for a time that no calendar has */
const instant = (ms) => (ms <= LAST_TIME ? new Date(ms).toISOString() : "");

/** @param {number} ms of the frontdesk's clock @returns {string} "18:02:11", as this device's clock has it */
export const timeOf = (ms) => (ms <= LAST_TIME ? clock.format(ms) : "–");

/** @param {number} ms @returns {string} "21 Nov 2026, 18:02" */
export const dateOf = (ms) => (ms <= LAST_TIME ? calendar.format(ms) : "–");
