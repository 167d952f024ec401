/** Texts of the board: numbers, times, metrics, states and concerns. No DOM, no clock. */

/** @import {BoardDocument, ClusterNode, Region, Shovel, Process} from "./board-document.js" */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const NONE = "–";

/** @param {number | null} value @returns {string} 41203 → "41,203" */
export const count = (value) => (value === null ? NONE : whole.format(value));

/** @param {number | null} value @returns {string} three figures at most: "4.31M", "12.4k", "0.3" */
export function short(value) {
  if (value === null) return NONE;
  for (const [unit, size] of /** @type {[string, number][]} */ ([["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])) {
    if (value >= size * 0.9995) return `${figures(value / size)}${unit}`;
  }
  return figures(value);
}

/** @param {number} value below 1000 */
function figures(value) {
  if (value >= 100 || Number.isInteger(value)) return whole.format(value);
  if (value >= 10) return trimmed(value.toFixed(1));
  return value < 0.01 && value > 0 ? "<0.01" : trimmed(value.toFixed(2));
}

/** @param {string} digits */
const trimmed = (digits) => digits.replace(/\.?0+$/, "");

/** @param {number | null} value */
export const rate = (value) => (value === null ? NONE : `${short(value)}/s`);

/** @param {number | null} ms @returns {string} "8 ms", "1.4 s" */
export function delay(ms) {
  if (ms === null) return NONE;
  if (ms < 1) return "<1 ms";
  return ms < 1000 ? `${whole.format(ms)} ms` : `${trimmed((ms / 1000).toFixed(1))} s`;
}

/** @param {number | null} ms @returns {string} "1.2 s", "3 min", "5 h", "12 days" */
export function span(ms) {
  if (ms === null) return NONE;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}

/** @param {number} ms @returns {string} whole seconds: "now", "4 s ago", "3 min ago" */
export const ago = (ms) => (ms < 1000 ? "now" : `${ms < 10_000 ? `${Math.floor(ms / 1000)} s` : span(ms)} ago`);

/** @param {number} part @param {number} all @returns {number} 0 to 1 */
export const share = (part, all) => (all > 0 ? Math.min(1, part / all) : 0);

/** @param {string} name the region's, of which a process's name begins @param {string} region */
export const own = (name, region) => (name.startsWith(`${region}-`) ? name.slice(region.length + 1) : name);

/* ---- Metrics ----------------------------------------------------------------------------------- */

/** The metric of each number on the board. */
export const METRICS = {
  readers: "newsfabric_gateway_readers",
  capacity: "newsfabric_gateway_readers",
  messages_per_second: "newsfabric_gateway_publications",
  deliveries_per_second: "newsfabric_gateway_deliveries",
  connects_per_second: "newsfabric_gateway_connects",
  delay: "newsfabric_gateway_delay_seconds",
  closes: "newsfabric_gateway_closes",
  holes: "newsfabric_gateway_holes_open",
  repaired: "newsfabric_gateway_recovered_messages",
  store: "newsfabric_router_store_write_seconds",
  boxes: "newsfabric_frontdesk_boxes",
  canary: "newsfabric_shovels_canary_age_seconds",
  restarts: "newsfabric_shovels_restarts",
  routed: "newsfabric_router_stage_left_messages",
};

/** The last second of the year 9999. */
const LAST_DATE = 253_402_300_799;

/** @param {number} seconds Unix time @returns {string} "2026-12-14" */
const dateOf = (seconds) => (seconds >= 0 && seconds <= LAST_DATE ? new Date(seconds * 1000).toISOString().slice(0, 10) : String(seconds));

/** @param {string} figure `gateway_delay_seconds.p99` @returns {string} the metric it was read from */
export const metricOf = (figure) => `newsfabric_${figure.split(".", 1)[0]}`;

/** @param {string} metric @returns {string} where the catalogue describes it */
export const metricUrl = (metric) => `/board/metrics#${encodeURIComponent(metric)}`;

/** @param {string} figure @param {number} value @returns {string} with its unit, as far as the name tells it */
export function figure(figure, value) {
  const [metric] = figure.split(".", 1);
  if (metric?.endsWith("_timestamp_seconds")) return dateOf(value);
  if (metric?.endsWith("_seconds")) return value < 0 ? String(value) : delay(value * 1000);
  if (metric?.endsWith("_bytes")) return `${short(Math.max(0, value))}B`;
  return value < 0 ? String(value) : short(value);
}

/* ---- States ------------------------------------------------------------------------------------ */

/** Ages up to which a canary is on time (they come each second) or may still come (then it is remade). */
export const LATE_MS = 3000;
export const SILENT_MS = 10_000;
/** Reports that are older show nothing of the present. */
export const OLD_MS = 5000;

/** @param {{age_ms: number}} part */
export const isOld = ({ age_ms: age }) => age > OLD_MS;

/** @param {number} ms */
const notHeard = (ms) => `not heard for ${span(ms)}`;

/** @param {Shovel} shovel @returns {"fresh" | "late" | "silent" | "unknown" | "stopped"} */
export function shovelState({ state, canary_age_ms: age }) {
  if (state === "terminated" || state === "missing") return "stopped";
  // No keeper reports the shovel any more, or no canary has arrived yet.
  if (state === "unknown" || age === null) return "unknown";
  if (age > SILENT_MS) return "silent";
  return age > LATE_MS ? "late" : "fresh";
}

/** @param {Shovel} shovel @returns {string} "4.2/s", or "not counted" for a box's shovel */
export const shovelRate = ({ state, messages_per_second: found }) => (found === null && state !== "unknown" ? "not counted" : rate(found));

/** @type {Record<string, string>} */
export const SHOVEL_WORDS = {
  fresh: "canaries on time",
  late: "canary late",
  silent: "no canary",
  unknown: "not known",
  stopped: "not running",
};

/** @param {Process} process @returns {string} its state, or `unheard` without a recent report */
export const stateNow = (process) => (isOld(process) && process.state !== "gone" && process.state !== "left" ? "unheard" : process.state);

/** @param {Process} process @returns {string} "draining", "starting: its feeds", "not heard for 40 s" */
export function stateWords(process) {
  const { state, waiting_for: waiting, age_ms: age } = process;
  if (state === "gone") return `silent for ${span(age)}`;
  if (state === "left") return `left ${span(age)} ago`;
  if (isOld(process)) return notHeard(age);
  return waiting.length ? `${state}: ${waiting.join("; ")}` : state;
}

/** @param {ClusterNode} node @returns {"up" | "alarm" | "down" | "unheard"} */
export function nodeState(node) {
  if (isOld(node)) return "unheard";
  return !node.running ? "down" : node.alarm ? "alarm" : "up";
}

/** @param {ClusterNode} node @returns {string} "running", "disk alarm", "not heard for 40 s" */
export function nodeWords(node) {
  if (isOld(node)) return notHeard(node.age_ms);
  return !node.running ? "not running" : node.alarm ? `${node.alarm} alarm` : "running";
}

/** @typedef {"bad" | "warn"} Level */
/**
 * @typedef {object} Concern
 * @property {string} key
 * @property {"part" | "shovel" | "shovels" | "region"} kind what it leads to
 * @property {string} about the name or key of that
 * @property {string} title
 * @property {string} text
 * @property {Level} level
 */

/** More silent shovels of a region than these have one cause, and are shown as a number. */
const FEW_SHOVELS = 3;

/**
 * The concerns, the worst first; within a region causes first: its own reasons, nodes, processes, shovels.
 *
 * @param {BoardDocument} document
 * @returns {Concern[]}
 */
export function concerns({ regions }) {
  const found = regions.flatMap((region) => (region.state === "away" ? [awayRegion(region)] : inRegion(region)));
  return found.sort((a, b) => Number(a.level === "warn") - Number(b.level === "warn"));
}

/** @param {Region} region @returns {Concern} */
const awayRegion = ({ name, why }) => ({ key: name, kind: "region", about: name, title: name, level: "bad", text: why[0] ?? "away" });

/** @param {Region} region @returns {Concern[]} */
function inRegion(region) {
  const parts = [...ofNodes(region), ...ofProcesses(region)];
  const shovels = ofShovels(region);
  const named = new Set([...parts, ...shovels].map(({ title }) => title));
  const causes = region.why.filter((why) => !isRepeated(why, named)).map((why) => ({
    key: `${region.name} ${why}`,
    kind: /** @type {const} */ ("region"),
    about: region.name,
    title: why,
    // The reasons of a region that is well are troubles to come.
    level: /** @type {Level} */ (region.state === "well" ? "warn" : "bad"),
    text: "",
  }));
  const silent = shovels.filter(({ level }) => level === "bad");
  if (silent.length <= FEW_SHOVELS) return [...causes, ...parts, ...shovels];
  const title = `${silent.length} shovels of ${region.name}`;
  const all = { key: `${region.name} shovels`, kind: /** @type {const} */ ("shovels"), about: "", title, level: /** @type {Level} */ ("bad"), text: "bring no canary" };
  return [...causes, ...parts, all, ...shovels.filter(({ level }) => level === "warn")];
}

/** True if a reason only repeats the state of a part that is shown. @param {string} why @param {Set<string>} named */
function isRepeated(why, named) {
  const [who, verb] = why.split(" ", 2);
  return named.has(who ?? "") && ["is", "isn't", "has", "brings"].includes(verb ?? "");
}

/** @param {Region} region @returns {Concern[]} */
const ofNodes = ({ clusters }) =>
  clusters
    .flatMap(({ nodes }) => nodes)
    // Parts without reports are shown with the process that is silent.
    .filter((node) => ["down", "alarm"].includes(nodeState(node)))
    .map((node) => part(node.node, node.running ? "warn" : "bad", nodeWords(node)));

/** @param {Region} region @returns {Concern[]} */
const ofProcesses = ({ services, boxes }) =>
  [...services, ...boxes]
    .filter((process) => process.state !== "ready" && process.state !== "left")
    .map((process) => part(process.name, process.state === "gone" ? "bad" : "warn", stateWords(process)));

/** @param {string} name @param {Level} level @param {string} text @returns {Concern} */
const part = (name, level, text) => ({ key: name, kind: "part", about: name, title: name, level, text });

/** @param {Region} region @returns {Concern[]} */
const ofShovels = ({ shovels }) =>
  shovels
    .map((shovel) => ({ shovel, state: shovelState(shovel) }))
    .filter(({ state }) => state === "silent" || state === "stopped" || state === "late")
    .map(({ shovel, state }) => ({
      key: shovel.key,
      kind: "shovel",
      about: shovel.key,
      title: `${shovel.runs_on}/${shovel.name}`,
      level: state === "late" ? "warn" : "bad",
      text: state === "late" ? `canary ${span(shovel.canary_age_ms)} old` : (SHOVEL_WORDS[state] ?? ""),
    }));

/** @param {BoardDocument} document @returns {{level: "good" | "bad" | "warn", text: string}} the one sentence on top */
export function verdict(document) {
  const { regions } = document;
  if (!regions.length) return { level: "warn", text: "No region is known yet" };
  const away = regions.filter(({ state }) => state === "away").map(({ name }) => name);
  const troubled = regions.filter(({ state }) => state === "troubled").map(({ name }) => name);
  const parts = [];
  if (away.length) parts.push(`${listed(away)} ${away.length > 1 ? "are" : "is"} away`);
  if (troubled.length) parts.push(`trouble in ${listed(troubled)}`);
  if (parts.length) return { level: "bad", text: away.length ? parts.join(", ") : sentence(parts.join("")) };
  if (regions.every(({ boxes }) => boxes.length === 0)) return { level: "warn", text: "No box serves readers" };
  const warned = concerns(document).length;
  return warned ? { level: "warn", text: "All regions are well, with something to watch" } : { level: "good", text: "All is well" };
}

/** @param {string[]} names */
export const listed = (names) => (names.length > 2 ? `${names.slice(0, 2).join(", ")} and ${names.length - 2} more` : names.join(" and "));

/** @param {string} words */
const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1);

/** @param {Region} region whether its totals are of a while ago */
const isUnheard = (region) => region.state === "away" || isOld(region);

/** @param {Region[]} regions @returns {string} "without dublin: not heard for 40 s"; empty if all are in the totals */
export function leftOut(regions) {
  const without = regions.filter(isUnheard);
  if (!without.length) return "";
  const age = Math.min(...without.map(({ age_ms: each }) => each));
  return `without ${listed(without.map(({ name }) => name))}: ${notHeard(age)}`;
}

/**
 * Sums over regions that were heard within seconds; of delays the slowest median and tail, since
 * percentiles can't be added.
 *
 * @param {Region[]} regions
 */
export function grandTotals(regions) {
  const all = regions.filter((region) => !isUnheard(region)).map(({ totals }) => totals);
  /** @param {"readers" | "capacity" | "boxes" | "boxes_ready" | "messages_per_second" | "deliveries_per_second" | "connects_per_second"} name */
  const sum = (name) => all.reduce((so, each) => so + each[name], 0);
  /** @param {"delay_p50_ms" | "delay_p99_ms"} name */
  const worst = (name) => all.reduce((so, each) => (each[name] === null ? so : Math.max(so ?? 0, each[name])), /** @type {number | null} */ (null));
  return {
    readers: sum("readers"),
    capacity: sum("capacity"),
    boxes: sum("boxes"),
    boxes_ready: sum("boxes_ready"),
    messages_per_second: sum("messages_per_second"),
    deliveries_per_second: sum("deliveries_per_second"),
    connects_per_second: sum("connects_per_second"),
    delay_p50_ms: worst("delay_p50_ms"),
    delay_p99_ms: worst("delay_p99_ms"),
  };
}

/* ---- Retrying ---------------------------------------------------------------------------------- */

const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 15_000;

/** @param {number} attempt 0 for the first @param {number} random in [0, 1) @returns {number} full jitter, never at once */
export const retryMs = (attempt, random) => 300 + random * (Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** Math.min(attempt, 10)) - 300);
