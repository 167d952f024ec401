/** The data of the plots, as columns for uPlot: regions on one time axis. No DOM. */

import { count, delay, METRICS, rate } from "./board-words.js";

/** @import {Plots} from "./board-document.js" */

/** @typedef {(number | null)[]} Column */
/** @typedef {{label: string, hue: number, dashed: boolean, points: Column}} Line hue: which colour of the page's row */
/** @typedef {{title: string, metric: string, say: (value: number | null) => string, lines: Line[]}} Plot */
/** @typedef {{seconds: number[], plots: Plot[]}} Plotted */

const MAX_REASONS = 6;

/** @type {{title: string, metric: string, say: (value: number | null) => string, series: [string, string][]}[]} each series with a word for it */
const KINDS = [
  { title: "Readers", metric: METRICS.readers, say: count, series: [["readers", ""]] },
  { title: "Messages", metric: METRICS.routed, say: rate, series: [["messages_per_second", ""]] },
  { title: "Deliveries", metric: METRICS.deliveries_per_second, say: rate, series: [["deliveries_per_second", ""]] },
  { title: "Delay, p99 and dashed median", metric: METRICS.delay, say: delay, series: [["delay_p99_ms", "p99"], ["delay_p50_ms", "p50"]] },
  { title: "Connects", metric: METRICS.connects_per_second, say: rate, series: [["connects_per_second", ""]] },
  { title: "Closes by reason", metric: METRICS.closes, say: rate, series: [] },
  { title: "Holes open, dashed repaired", metric: METRICS.holes, say: (value) => count(value), series: [["holes_open", ""], ["repaired_per_second", "repaired/s"]] },
  { title: "Store, p99", metric: METRICS.store, say: delay, series: [["store_p99_ms", ""]] },
];

/**
 * @param {Plots} found
 * @param {string} only a region, or "" for all
 * @param {string[]} order of regions, which gives each its colour
 * @returns {Plotted}
 */
export function plotted({ every_ms: every, regions }, only, order) {
  const names = order.filter((name) => regions[name] && (!only || name === only));
  const slots = axis(names.flatMap((name) => regions[name]?.at_ms ?? []), every);
  /** @param {string} name @param {string} series @returns {Column} */
  const column = (name, series) => placed(regions[name]?.at_ms ?? [], regions[name]?.series[series] ?? [], slots, every);
  const plots = KINDS.map(({ title, metric, say, series }) => ({
    title,
    metric,
    say,
    lines: series.length
      ? series.flatMap(([id, word], n) =>
          names.map((name) => ({ label: word ? `${name} ${word}` : name, hue: order.indexOf(name), dashed: n > 0, points: column(name, id) })),
        )
      : closes(names, regions, column),
  }));
  return { seconds: slots.map((slot) => (slot * every) / 1000), plots };
}

/** Numbers of the steps of time from the first to the last, at most an hour's. @param {number[]} times @param {number} every @returns {number[]} */
function axis(times, every) {
  if (!times.length) return [];
  const last = Math.round(times.reduce((a, b) => Math.max(a, b)) / every);
  const first = Math.max(Math.round(times.reduce((a, b) => Math.min(a, b)) / every), last - 719);
  return Array.from({ length: last - first + 1 }, (_, n) => first + n);
}

/** @param {number[]} times @param {Column} points @param {number[]} slots @param {number} every @returns {Column} */
function placed(times, points, slots, every) {
  /** @type {Column} */
  const column = new Array(slots.length).fill(null);
  const first = slots[0] ?? 0;
  times.forEach((ms, n) => {
    const at = Math.round(ms / every) - first;
    if (at >= 0 && at < column.length) column[at] = points[n] ?? null;
  });
  return column;
}

/** A line for each reason, of all regions together: a line for each of both would be a thicket. @param {string[]} names @param {Plots["regions"]} regions @param {(name: string, series: string) => Column} column @returns {Line[]} */
function closes(names, regions, column) {
  const reasons = new Set(names.flatMap((name) => Object.keys(regions[name]?.series ?? {}).filter((series) => series.startsWith("closes."))));
  return [...reasons]
    .map((reason) => ({ label: reason.slice("closes.".length).replaceAll("_", " "), points: sum(names.map((name) => column(name, reason))) }))
    .map((line) => ({ ...line, weight: line.points.reduce((/** @type {number} */ so, point) => so + (point ?? 0), 0) }))
    .sort((a, b) => b.weight - a.weight)
    .slice(0, MAX_REASONS)
    .map(({ label, points }, hue) => ({ label, hue, dashed: false, points }));
}

/** @param {Column[]} columns @returns {Column} */
const sum = ([first = [], ...others]) =>
  first.map((point, n) => others.reduce((so, column) => (column[n] === null || column[n] === undefined ? so : (so ?? 0) + column[n]), point));

/** @param {Column} points @returns {number | null} the newest that is known */
export const newest = (points) => points.findLast((point) => point !== null) ?? null;

/** @param {Plot} plot @returns {string} in words, for who can't see it */
export function inWords({ title, say, lines }) {
  const words = lines.map(({ label, points }) => {
    const known = points.filter((point) => point !== null);
    if (!known.length) return `${label} not known`;
    const [low, high] = [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
    return `${label} now ${say(newest(points))}, from ${say(low)} to ${say(high)}`;
  });
  return `${title}, the last hour: ${words.join("; ") || "nothing known"}`;
}
