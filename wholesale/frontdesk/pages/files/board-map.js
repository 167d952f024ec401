/** The live map: an SVG that is laid out anew when something comes or goes, and else only recoloured. */

import { byId, setAttribute, setShare, setText, svg } from "./board-dom.js";
import { layout, thickness } from "./board-layout.js";
import { count, delay, METRICS, nodeState, nodeWords, own, rate, share, SHOVEL_WORDS, shovelRate, shovelState, span, stateNow, stateWords } from "./board-words.js";

/** @import {BoardDocument, Region, Shovel} from "./board-document.js" */
/** @import {Layout, PlacedBox, PlacedCluster, PlacedRegion, PlacedShovel} from "./board-layout.js" */

/** @typedef {{line: SVGElement, arrow: SVGElement | null}} ShovelView */

export class BoardMap {
  /** @param {(kind: "box" | "cluster" | "shovel", key: string) => void} onOpen */
  constructor(onOpen) {
    this.frame = byId("map");
    this.tip = byId("tip");
    this.onOpen = onOpen;
    this.width = 0;
    this.shape = "";
    /** @type {BoardDocument | null} */
    this.document = null;
    /** @type {Map<string, ShovelView>} */
    this.shovels = new Map();
    /** @type {Map<string, {root: SVGElement, fill: SVGElement, label: SVGElement | null}>} */
    this.boxes = new Map();
    /** @type {Map<string, SVGElement[]>} nodes of each cluster, in order */
    this.nodes = new Map();
    /** @type {Map<string, {root: SVGElement, detail: SVGElement, hidden: SVGElement}>} */
    this.regions = new Map();
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry?.contentRect.width ?? 0);
      if (width === this.width) return;
      this.width = width;
      if (this.document) this.update(this.document);
    }).observe(this.frame);
    this.frame.addEventListener("click", (event) => {
      const { kind, key } = partOf(event.target);
      if (kind && key !== undefined) this.onOpen(kind, key);
    });
    this.frame.addEventListener("pointermove", (event) => this.#point(event));
    this.frame.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  /** @param {BoardDocument} document */
  update(document) {
    this.document = document;
    if (!this.width) return;
    const shape = shapeOf(document, this.width);
    if (shape !== this.shape) {
      this.shape = shape;
      this.#draw(layout(document, this.width));
    }
    for (const region of document.regions) this.#fill(region);
    setAttribute(this.frame, "aria-label", summary(document));
  }

  /** @param {Layout} made */
  #draw(made) {
    for (const each of [this.shovels, this.boxes, this.nodes, this.regions]) each.clear();
    const root = svg("svg", { width: String(made.width), height: String(made.height), "aria-hidden": "true", focusable: "false" });
    const below = svg("g");
    const above = svg("g");
    const groups = new Map(made.regions.map((region) => [region.region.name, this.#region(region, below)]));
    /** @param {string} region */
    const group = (region) => groups.get(region) ?? above;
    for (const shovel of made.shovels) this.#shovel(shovel, shovel.thin ? group(shovel.region) : above);
    for (const box of made.boxes) this.#box(box, group(box.region));
    const top = svg("g");
    for (const cluster of made.clusters) this.#cluster(cluster, top);
    root.append(below, above, top);
    this.frame.replaceChildren(root);
  }

  /** @param {PlacedRegion} region @param {SVGElement} parent */
  #region({ region, x, y, width, height, mirrored, hidden }, parent) {
    const anchor = mirrored ? "end" : "start";
    const at = String(mirrored ? x + width - 16 : x + 16);
    const detail = svg("text", { class: "map-detail", x: at, y: String(y + 46), "text-anchor": anchor });
    const more = svg("text", { class: "map-detail", x: String(mirrored ? x + 16 : x + width - 16), y: String(y + 46), "text-anchor": mirrored ? "start" : "end" });
    const name = svg("text", { class: "map-region", x: at, y: String(y + 27), "text-anchor": anchor });
    name.textContent = region.name;
    if (hidden) more.textContent = `and ${hidden} more boxes`;
    const frame = svg("rect", { class: "map-panel", x: String(x), y: String(y), width: String(width), height: String(height), rx: "10" });
    const root = svg("g", { class: "map-of" }, frame, name, detail, more);
    this.regions.set(region.name, { root, detail, hidden: more });
    parent.append(root);
    return root;
  }

  /** @param {PlacedShovel} placed @param {SVGElement} parent */
  #shovel({ key, path, arrow, thin }, parent) {
    const line = svg("path", { class: "shovel", d: path, "data-kind": "shovel", "data-key": key });
    const head = arrow ? svg("path", { class: "shovel arrow", d: arrow }) : null;
    if (thin) line.classList.add("thread");
    parent.append(line, ...(head ? [head] : []));
    this.shovels.set(key, { line, arrow: head });
  }

  /** @param {PlacedBox} placed @param {SVGElement} parent */
  #box({ key, region, mirrored, labelled, x, y, width, height }, parent) {
    const at = { x: String(x), y: String(y), width: String(width), height: String(height), rx: "2" };
    const track = svg("rect", { class: "map-track", ...at });
    const fill = svg("rect", { class: "map-load", ...at });
    // The bar grows away from the core.
    fill.style.transformOrigin = `${mirrored ? x + width : x}px 0`;
    /** @type {SVGElement | null} */
    let label = null;
    if (labelled) {
      label = svg("text", { class: "map-box-label", x: String(mirrored ? x + width - 6 : x + 6), y: String(y + height / 2 + 3.8), "text-anchor": mirrored ? "end" : "start" });
      label.textContent = own(key, region);
    }
    const root = svg("g", { class: "map-box", "data-kind": "box", "data-key": key }, track, fill, ...(label ? [label] : []));
    parent.append(root);
    this.boxes.set(key, { root, fill, label });
  }

  /** @param {PlacedCluster} placed @param {SVGElement} parent */
  #cluster({ key, label, x, y, width, height, nodes }, parent) {
    const card = svg("rect", { class: "map-cluster", x: String(x), y: String(y), width: String(width), height: String(height), rx: "8" });
    const name = svg("text", { class: "map-name", x: String(x + width / 2), y: String(y + 27), "text-anchor": "middle" });
    name.textContent = label;
    const dots = nodes.map((node) => svg("circle", { class: "map-node", cx: String(node.x), cy: String(node.y), r: "5" }));
    this.nodes.set(key, dots);
    parent.append(svg("g", { class: "map-part", "data-kind": "cluster", "data-key": key }, card, name, ...dots));
  }

  /** @param {Region} region */
  #fill(region) {
    const view = this.regions.get(region.name);
    if (view) {
      setAttribute(view.root, "data-state", region.state);
      const { readers, boxes, boxes_ready: ready } = region.totals;
      setText(view.detail, region.state === "away" ? `not heard for ${span(region.age_ms)}` : `${count(readers)} readers, ${ready} of ${boxes} boxes ready`);
    }
    for (const box of region.boxes) {
      const drawn = this.boxes.get(box.name);
      if (!drawn) continue;
      setAttribute(drawn.root, "data-state", stateNow(box));
      setShare(drawn.fill, share(box.readers, box.capacity));
    }
    for (const { name, nodes } of region.clusters) {
      this.nodes.get(name)?.forEach((dot, n) => {
        const node = nodes[n];
        setAttribute(dot, "data-state", node ? nodeState(node) : "");
      });
    }
    for (const shovel of region.shovels) {
      const drawn = this.shovels.get(shovel.key);
      if (!drawn) continue;
      const state = shovelState(shovel);
      const width = thickness(shovel.messages_per_second).toFixed(1);
      setAttribute(drawn.line, "data-state", state);
      setAttribute(drawn.line, "stroke-width", drawn.arrow ? width : (Number(width) * 0.4).toFixed(1));
      if (drawn.arrow) setAttribute(drawn.arrow, "data-state", state);
    }
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const { kind, key } = partOf(event.target);
    const words = kind && key !== undefined && this.document ? describe(this.document, kind, key) : [];
    this.tip.hidden = words.length === 0;
    if (!words.length) return;
    const [title = "", ...lines] = words;
    setText(/** @type {Element} */ (this.tip.firstElementChild), title);
    setText(/** @type {Element} */ (this.tip.lastElementChild), lines.join("\n"));
    const { left, top, width } = this.frame.getBoundingClientRect();
    const x = Math.min(event.clientX - left + 14, width - this.tip.offsetWidth - 4);
    this.tip.style.transform = `translate(${Math.max(0, x)}px, ${event.clientY - top + 16}px)`;
  }
}

/** @param {EventTarget | null} target @returns {{kind?: "box" | "cluster" | "shovel", key?: string}} */
function partOf(target) {
  const part = target instanceof Element ? target.closest("[data-kind]") : null;
  if (!(part instanceof SVGElement)) return {};
  return { kind: /** @type {"box" | "cluster" | "shovel"} */ (part.dataset.kind), key: part.dataset.key ?? "" };
}

/** The input of the layout, without values that change each second. @param {BoardDocument} document @param {number} width */
function shapeOf({ regions }, width) {
  const parts = regions.map(({ name, clusters, boxes, shovels }) => [
    name,
    clusters.map((cluster) => [cluster.name, cluster.nodes.length]),
    boxes.map((box) => box.name),
    // Of many boxes only some are drawn: those that aren't ready.
    boxes.length > 96 ? boxes.filter(({ state }) => state !== "ready").map((box) => box.name) : 0,
    shovels.map(({ key, source }) => [key, source]),
  ]);
  return JSON.stringify([width, parts]);
}

/** @param {BoardDocument} document @returns {string} the map in a sentence, for who can't see it */
function summary({ regions }) {
  const shovels = regions.flatMap((region) => region.shovels);
  const silent = shovels.filter((shovel) => ["silent", "stopped"].includes(shovelState(shovel))).length;
  const boxes = regions.reduce((sum, region) => sum + region.boxes.length, 0);
  return `Map: ${regions.length} regions, ${boxes} boxes, ${shovels.length} shovels, ${silent ? `${silent} of them silent` : "none of them silent"}. The same as a list follows.`;
}

/** @param {BoardDocument} document @param {"box" | "cluster" | "shovel"} kind @param {string} key @returns {string[]} */
function describe({ regions }, kind, key) {
  for (const region of regions) {
    if (kind === "box") {
      const box = region.boxes.find(({ name }) => name === key);
      if (box) return [box.name, stateWords(box), `${count(box.readers)} of ${count(box.capacity)} readers`, `${rate(box.deliveries_per_second)} deliveries`, `delay ${delay(box.delay_p50_ms)} / ${delay(box.delay_p99_ms)}`];
    } else if (kind === "shovel") {
      const shovel = region.shovels.find((each) => each.key === key);
      if (shovel) return shovelLines(shovel);
    } else {
      const cluster = region.clusters.find(({ name }) => name === key);
      if (cluster) return [cluster.name, ...cluster.nodes.map((node) => `${node.node}: ${nodeWords(node)}`)];
    }
  }
  return [];
}

/** @param {Shovel} shovel */
function shovelLines(shovel) {
  const state = SHOVEL_WORDS[shovelState(shovel)] ?? shovel.state;
  return [shovel.name, `${shovel.source} → ${shovel.runs_on}`, `${state}, ${span(shovel.canary_age_ms)} old`, `${shovelRate(shovel)}, restarted ${shovel.restarts} times`, METRICS.canary];
}
