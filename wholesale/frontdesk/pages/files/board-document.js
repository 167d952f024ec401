/**
 * The board's document, read from untrusted bytes, without a browser.
 *
 * Names and texts in it were written by other machines. After reading, each is a bounded string, each
 * number is finite and each list is bounded, so the drawing code needs no checks. Anything but a document
 * throws. Ages of a region's parts are measured at the answering frontdesk: they include the region's age.
 */

/** @typedef {Record<string, number>} Figures name of a figure → its value */
/**
 * @typedef {object} Totals
 * @property {number} readers
 * @property {number} capacity
 * @property {number} boxes
 * @property {number} boxes_ready
 * @property {number} messages_per_second
 * @property {number} deliveries_per_second
 * @property {number} connects_per_second
 * @property {number | null} delay_p50_ms
 * @property {number | null} delay_p99_ms
 */
/** @typedef {{node: string, running: boolean, alarm: string, age_ms: number}} ClusterNode `age_ms`: since the last report */
/** @typedef {{name: string, nodes: ClusterNode[]}} Cluster */
/**
 * @typedef {object} Process what boxes and services have in common
 * @property {string} name
 * @property {string} state `ready`, `starting`, `draining`, `gone` or `left`
 * @property {string[]} waiting_for
 * @property {string} version
 * @property {number} age_ms
 * @property {number} started_ms
 * @property {Figures} figures
 */
/** @typedef {Process & {kind: string}} Service */
/**
 * @typedef {Process & {readers: number, capacity: number, messages_per_second: number,
 *   deliveries_per_second: number, connects_per_second: number, delay_p50_ms: number | null,
 *   delay_p99_ms: number | null, engine: string}} Box
 */
/**
 * @typedef {object} Shovel
 * @property {string} key unique in the document
 * @property {string} name
 * @property {string} runs_on
 * @property {string} source
 * @property {string} state
 * @property {number | null} canary_age_ms
 * @property {number | null} messages_per_second
 * @property {number} restarts
 */
/** @typedef {{name: string, messages_per_second: number}} Busy */
/**
 * @typedef {object} Region
 * @property {string} name
 * @property {string} board_url of its own board; empty if it has none
 * @property {number} age_ms
 * @property {string} state `well`, `troubled` or `away`
 * @property {string[]} why
 * @property {Totals} totals
 * @property {Cluster[]} clusters
 * @property {Service[]} services
 * @property {Shovel[]} shovels
 * @property {Box[]} boxes
 * @property {Busy[]} topics
 * @property {Busy[]} publishers
 */
/** @typedef {{seq: number, at_ms: number, region: string, kind: string, who: string, text: string}} BoardEvent */
/**
 * @typedef {object} BoardDocument
 * @property {string} frontdesk
 * @property {string} region
 * @property {string} version
 * @property {number} now_ms
 * @property {Region[]} regions
 * @property {BoardEvent[]} events oldest first
 */
/** @typedef {{at_ms: number[], series: Record<string, (number | null)[]>}} RegionPlots */
/** @typedef {{every_ms: number, regions: Record<string, RegionPlots>}} Plots */

export const MAX_TEXT = 255;
export const MAX_REGIONS = 32;
export const MAX_BOXES = 1000;
export const MAX_SERVICES = 200;
export const MAX_SHOVELS = 4096;
export const MAX_EVENTS = 100;
export const MAX_POINTS = 720;
const MAX_CLUSTERS = 16;
const MAX_NODES = 64;
const MAX_REASONS = 16;
const MAX_FIGURES = 96;
const MAX_BUSIEST = 20;
const MAX_SERIES = 64;

/** @param {unknown} value @returns {Record<string, unknown>} */
const object = (value) =>
  typeof value === "object" && value !== null && !Array.isArray(value)
    ? /** @type {Record<string, unknown>} */ (value)
    : {};

/** @param {unknown} value @param {number} most @returns {unknown[]} */
const list = (value, most) => (Array.isArray(value) ? value.slice(0, most) : []);

/** @param {unknown} value @returns {string} without what could reorder or hide other text */
export function text(value) {
  if (typeof value !== "string") return "";
  // Control characters and marks of direction: a name must not change how its neighbours read.
  return value.slice(0, MAX_TEXT).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, " ");
}

/** @param {unknown} value @returns {number | null} finite and not negative, or null */
export const known = (value) => (typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : null);

/** @param {unknown} value @returns {number} */
const number = (value) => known(value) ?? 0;

/** @param {unknown} value @returns {string[]} */
const texts = (value) => list(value, MAX_REASONS).map(text).filter(Boolean);

/** @param {unknown} value @returns {BoardDocument} throws what isn't one */
export function readDocument(value) {
  const fields = object(value);
  if (!Array.isArray(fields.regions)) throw new TypeError("not a board's document");
  return {
    frontdesk: text(fields.frontdesk),
    region: text(fields.region),
    version: text(fields.version),
    now_ms: number(fields.now_ms),
    regions: unique(list(fields.regions, MAX_REGIONS).map(region)),
    events: list(fields.events, MAX_EVENTS).map(event),
  };
}

/** @template {{name: string}} T @param {T[]} items @returns {T[]} one of each name, the first */
function unique(items) {
  const seen = new Set();
  return items.filter(({ name }) => !seen.has(name) && seen.add(name));
}

/** @param {unknown} value @returns {Region} */
function region(value) {
  const fields = object(value);
  const name = text(fields.name);
  const age = number(fields.age_ms);
  const state = oneOf(fields.state, ["well", "troubled", "away"], "troubled");
  /** @param {unknown} each @param {number} n */
  const shovelHere = (each, n) => (state === "away" ? unvouched(shovel(each, `${name}#${n}`), age) : shovel(each, `${name}#${n}`));
  return {
    name,
    board_url: boardUrl(fields.frontdesk_url),
    age_ms: age,
    state,
    why: texts(fields.why),
    totals: totals(fields.totals),
    clusters: unique(list(fields.clusters, MAX_CLUSTERS).map((each) => cluster(each, age))),
    services: unique(list(fields.services, MAX_SERVICES).map((each) => service(each, age))).sort(byName),
    shovels: list(fields.shovels, MAX_SHOVELS).map(shovelHere),
    boxes: unique(list(fields.boxes, MAX_BOXES).map((each) => box(each, age))).sort(byName),
    topics: unique(list(fields.topics, MAX_BUSIEST).map(busy)),
    publishers: unique(list(fields.publishers, MAX_BUSIEST).map(busy)),
  };
}

const collator = new Intl.Collator("en", { numeric: true });
/** @param {{name: string}} a @param {{name: string}} b retail-2 before retail-10 */
const byName = (a, b) => collator.compare(a.name, b.name);

/** @param {unknown} value @param {string[]} words @param {string} otherwise */
const oneOf = (value, words, otherwise) => words.find((word) => word === value) ?? otherwise;

/** @param {unknown} value */
const processState = (value) => oneOf(value, ["ready", "starting", "draining", "gone"], "starting");

/** @param {Record<string, unknown>} fields a process; one that ended on a drain order has `left` */
const stateOf = ({ state, left }) => (state === "gone" && left === true ? "left" : processState(state));

/** @param {unknown} value @returns {string} the board of a frontdesk at an http(s) address */
function boardUrl(value) {
  if (typeof value !== "string" || value.length > 2048) return "";
  try {
    const url = new URL(value);
    if (url.protocol !== "http:" && url.protocol !== "https:") return "";
    return new URL("/board", url.origin).href;
  } catch {
    return "";
  }
}

/** @param {unknown} value @returns {Totals} */
function totals(value) {
  const fields = object(value);
  return {
    readers: number(fields.readers),
    capacity: number(fields.capacity),
    boxes: number(fields.boxes),
    boxes_ready: number(fields.boxes_ready),
    messages_per_second: number(fields.messages_per_second),
    deliveries_per_second: number(fields.deliveries_per_second),
    connects_per_second: number(fields.connects_per_second),
    delay_p50_ms: known(fields.delay_p50_ms),
    delay_p99_ms: known(fields.delay_p99_ms),
  };
}

/** @param {unknown} value @param {number} age of the region, ms @returns {Cluster} */
function cluster(value, age) {
  const fields = object(value);
  const nodes = list(fields.nodes, MAX_NODES).map((each) => {
    const node = object(each);
    return { node: text(node.node), running: node.running === true, alarm: text(node.alarm), age_ms: age + number(node.age_ms) };
  });
  return { name: text(fields.name), nodes };
}

/** @param {Record<string, unknown>} fields @param {number} age of the region, ms @returns {Process} */
function process(fields, age) {
  const figures = Object.entries(object(fields.figures)).slice(0, MAX_FIGURES);
  return {
    name: text(fields.name),
    state: stateOf(fields),
    waiting_for: texts(fields.waiting_for),
    version: text(fields.version),
    age_ms: age + number(fields.age_ms),
    started_ms: number(fields.started_ms),
    figures: Object.fromEntries(
      figures.filter(([, found]) => typeof found === "number" && Number.isFinite(found)).map(([name, found]) => [text(name), Number(found)]),
    ),
  };
}

/** @param {unknown} value @param {number} age of the region, ms @returns {Service} */
function service(value, age) {
  const fields = object(value);
  return { ...process(fields, age), kind: text(fields.kind) };
}

/** @param {unknown} value @param {number} age of the region, ms @returns {Box} */
function box(value, age) {
  const fields = object(value);
  return {
    ...process(fields, age),
    readers: number(fields.readers),
    capacity: number(fields.capacity),
    messages_per_second: number(fields.messages_per_second),
    deliveries_per_second: number(fields.deliveries_per_second),
    connects_per_second: number(fields.connects_per_second),
    delay_p50_ms: known(fields.delay_p50_ms),
    delay_p99_ms: known(fields.delay_p99_ms),
    engine: text(fields.engine),
  };
}

/** @param {unknown} value @param {string} spare a key where names don't make one @returns {Shovel} */
function shovel(value, spare) {
  const fields = object(value);
  const [name, runsOn] = [text(fields.name), text(fields.runs_on)];
  return {
    key: name && runsOn ? `${runsOn} ${name}` : spare,
    name,
    runs_on: runsOn,
    source: text(fields.source),
    state: text(fields.state),
    canary_age_ms: known(fields.canary_age_ms),
    messages_per_second: known(fields.messages_per_second),
    restarts: number(fields.restarts),
  };
}

/** A shovel of a region that is away: its present state is unknown. @param {Shovel} shovel @param {number} age of the region, ms @returns {Shovel} */
const unvouched = (shovel, age) => ({
  ...shovel,
  state: "unknown",
  canary_age_ms: shovel.canary_age_ms === null ? null : shovel.canary_age_ms + age,
  messages_per_second: null,
});

/** @param {unknown} value @returns {Busy} */
function busy(value) {
  const fields = object(value);
  return { name: text(fields.name), messages_per_second: number(fields.messages_per_second) };
}

/** @param {unknown} value @returns {BoardEvent} */
function event(value) {
  const fields = object(value);
  return {
    seq: number(fields.seq),
    at_ms: number(fields.at_ms),
    region: text(fields.region),
    kind: text(fields.kind),
    who: text(fields.who),
    text: text(fields.text),
  };
}

/** @param {unknown} value @returns {Plots} throws what isn't one */
export function readPlots(value) {
  const fields = object(value);
  const everyMs = known(fields.every_ms);
  if (!everyMs) throw new TypeError("not plots");
  const regions = Object.entries(object(fields.regions)).slice(0, MAX_REGIONS);
  return {
    every_ms: everyMs,
    regions: Object.fromEntries(regions.map(([name, each]) => [text(name), regionPlots(each)])),
  };
}

/** @param {unknown} value @returns {RegionPlots} */
function regionPlots(value) {
  const fields = object(value);
  const series = Object.entries(object(fields.series)).slice(0, MAX_SERIES);
  return {
    at_ms: list(fields.at_ms, MAX_POINTS).map(number),
    series: Object.fromEntries(series.map(([name, points]) => [text(name), list(points, MAX_POINTS).map(known)])),
  };
}

/**
 * The last hundred events, oldest first, when `found` came after `before`. Another frontdesk numbers
 * anew, and so does one that was started again: its events replace those that were there.
 *
 * @param {BoardEvent[]} before
 * @param {BoardEvent[]} found
 * @param {boolean} anew whether `found` is all there is
 * @returns {BoardEvent[]}
 */
export function mergedEvents(before, found, anew) {
  if (anew) return found;
  const last = before.at(-1)?.seq ?? 0;
  const fresh = found.filter(({ seq }) => seq > last);
  return fresh.length ? [...before, ...fresh].slice(-MAX_EVENTS) : before;
}
