/** The last hour, drawn by uPlot: in view only, one plot in each frame, so that nothing stutters. */

import { readPlots } from "./board-document.js";
import { byId, el, Keyed, metricLink, setAttribute, setHidden, setText } from "./board-dom.js";
import { inWords, newest, plotted } from "./board-series.js";
import { short } from "./board-words.js";

/** @import {Plots} from "./board-document.js" */
/** @import {Line, Plot} from "./board-series.js" */

const EVERY_MS = 10_000;
const ANSWER_MS = 8000;
const HEIGHT = 132;
export const HUES = 6;

/** @typedef {{root: HTMLElement, canvas: HTMLElement, keys: Keyed<Line, {root: HTMLElement, value: HTMLElement}>, chart: any, shape: string, plot: Plot | null}} PlotView */

export class PlotWall {
  constructor() {
    this.parent = byId("plots");
    this.note = byId("plots-note");
    this.choice = byId("plots-regions");
    /** @type {Plots | null} */
    this.found = null;
    /** @type {string[]} */
    this.order = [];
    this.only = "";
    this.isSeen = false;
    this.views = new Keyed(this.parent, makeView, () => undefined);
    /** @type {(() => void)[]} */
    this.jobs = [];
    new IntersectionObserver(([entry]) => {
      this.isSeen = entry?.isIntersecting ?? false;
      if (this.isSeen) this.draw();
    }, { rootMargin: "200px" }).observe(this.parent);
    new ResizeObserver(() => this.draw()).observe(this.parent);
    document.addEventListener("themechange", () => this.#anew());
    this.choice.addEventListener("change", (event) => {
      if (event.target instanceof HTMLInputElement) this.only = event.target.value;
      this.draw();
    });
  }

  start() {
    void this.ask();
    setInterval(() => document.hidden || void this.ask(), EVERY_MS);
  }

  /** @param {string[]} found */
  regions(found) {
    // By name, so that a region has the same colour on each region's board.
    const names = [...found].sort();
    if (names.join("\n") === this.order.join("\n")) return;
    this.order = names;
    if (!names.includes(this.only)) this.only = "";
    const choices = ["", ...names].map((name, n) => {
      const input = /** @type {HTMLInputElement} */ (el("input", { type: "radio", name: "plots-region", value: name }));
      input.checked = name === this.only;
      const swatch = name ? [el("span", { class: "swatch", "data-hue": String((n - 1) % HUES) })] : [];
      return el("label", {}, input, ...swatch, name || "all regions");
    });
    this.choice.replaceChildren(...choices);
    setHidden(/** @type {HTMLElement} */ (this.choice.parentElement), names.length < 2);
    this.draw();
  }

  async ask() {
    try {
      const answer = await fetch("/board/plots.json", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
      if (!answer.ok) throw new Error(String(answer.status));
      this.found = readPlots(await answer.json());
      setText(this.note, "");
      this.draw();
    } catch {
      setText(this.note, this.found ? "These plots are as old as the last answer." : "There are no plots yet.");
    }
  }

  draw() {
    if (!this.found || !this.isSeen || !("uPlot" in globalThis)) return;
    const { seconds, plots } = plotted(this.found, this.only, this.order);
    this.views.update(plots, ({ title }) => title);
    const isIdle = this.jobs.length === 0;
    this.jobs = plots.map((plot) => () => drawn(/** @type {PlotView} */ (this.views.views.get(plot.title)), plot, seconds));
    if (isIdle) requestAnimationFrame(() => this.#work());
  }

  /** Draw a plot in each frame: all of them at once would make a frame late. */
  #work() {
    this.jobs.shift()?.();
    if (this.jobs.length) requestAnimationFrame(() => this.#work());
  }

  #anew() {
    for (const view of this.views.views.values()) view.shape = "";
    this.draw();
  }
}

/** @param {Plot} plot @returns {PlotView} */
function makeView({ title, metric }) {
  const keys = el("p", { class: "keys" });
  const canvas = el("div", { class: "canvas", role: "img", "aria-label": title });
  const heading = el("h3", {}, metricLink(metric));
  setText(/** @type {Element} */ (heading.firstElementChild), title);
  return {
    root: el("figure", { class: "plot" }, heading, keys, canvas),
    canvas,
    keys: new Keyed(
      keys,
      (line) => {
        const value = el("b");
        return { root: el("span", { class: "key" }, el("span", { class: "swatch", "data-hue": String(line.hue % HUES), "data-dashed": String(line.dashed) }), `${line.label} `, value), value };
      },
      () => undefined,
    ),
    chart: null,
    shape: "",
    plot: null,
  };
}

/** @param {PlotView} view @param {Plot} plot @param {number[]} seconds */
function drawn(view, plot, seconds) {
  view.plot = plot;
  view.keys.update(plot.lines, ({ label, hue }) => `${label} ${hue}`);
  setAttribute(view.canvas, "aria-label", inWords(plot));
  const width = view.root.clientWidth;
  const shape = JSON.stringify([width, plot.lines.map(({ label, hue }) => [label, hue])]);
  const data = [seconds, ...plot.lines.map(({ points }) => points)];
  if (view.shape === shape && view.chart) {
    view.chart.setData(data);
  } else {
    view.chart?.destroy();
    view.shape = shape;
    view.chart = new /** @type {any} */ (globalThis).uPlot(options(view, plot, width), data, view.canvas);
  }
  showValues(view, null);
}

/** Values beside the names: under the cursor, or the newest. @param {PlotView} view @param {number | null | undefined} at */
function showValues(view, at) {
  for (const line of view.plot?.lines ?? []) {
    const value = at === null || at === undefined ? newest(line.points) : (line.points[at] ?? null);
    const key = view.keys.views.get(`${line.label} ${line.hue}`);
    if (key) setText(key.value, view.plot?.say(value) ?? "");
  }
}

/** @param {PlotView} view @param {Plot} plot @param {number} width */
function options(view, plot, width) {
  const colour = colours(view.root);
  const axis = {
    stroke: colour("--plot-ink"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: colour("--plot-grid"), width: 1 },
    ticks: { show: false },
  };
  return {
    width,
    height: HEIGHT,
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "board" }, points: { size: 6 }, drag: { x: false, y: false }, y: false },
    scales: { y: { range: (/** @type {unknown} */ _, /** @type {number} */ low, /** @type {number} */ high) => [0, nice(low, high)] } },
    axes: [
      { ...axis, size: 24, space: 70, values: (/** @type {unknown} */ _, /** @type {number[]} */ ticks) => ticks.map(minute) },
      { ...axis, size: 46, space: 34, values: (/** @type {unknown} */ _, /** @type {number[]} */ ticks) => ticks.map((tick) => short(tick)) },
    ],
    series: [
      {},
      ...plot.lines.map(({ hue, dashed }) => ({
        stroke: colour(`--hue-${hue % HUES}`),
        width: 1.5,
        dash: dashed ? [4, 3] : [],
        points: { show: false },
      })),
    ],
    hooks: { setCursor: [(/** @type {{cursor: {idx: number | null}}} */ chart) => showValues(view, chart.cursor.idx)] },
  };
}

/** The present colours of the style sheet: a canvas knows no variables, and no light-dark(). @param {HTMLElement} parent */
function colours(parent) {
  const probe = el("span", { hidden: "" });
  parent.append(probe);
  const style = getComputedStyle(probe);
  const known = new Map();
  /** @param {string} name */
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return style.color;
  };
  for (const name of ["--plot-ink", "--plot-grid", ...Array.from({ length: HUES }, (_, n) => `--hue-${n}`)]) known.set(name, colour(name));
  probe.remove();
  /** @param {string} name @returns {string} */
  return (name) => known.get(name);
}

/** The top of an axis that begins at 0. @param {number | null} low @param {number | null} high */
const nice = (low, high) => (low === null || high === null || high <= 0 ? 1 : high * 1.08);

const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/** @param {number} seconds */
const minute = (seconds) => minutes.format(seconds * 1000);
