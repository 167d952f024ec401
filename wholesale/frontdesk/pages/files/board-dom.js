/** Small tools for a page that changes in place: nothing is touched that stays as it is. */

import { metricUrl } from "./board-words.js";

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`no element ${id}`);
  return found;
}

/**
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** @param {string} tag @param {Record<string, string>} [attributes] @param {...Node} children @returns {SVGElement} */
export function svg(tag, attributes = {}, ...children) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** @type {WeakMap<Node, string>} what was set last: reading it back from the DOM costs more */
const texts = new WeakMap();

/** @param {Element} node @param {string} text */
export function setText(node, text) {
  if (texts.get(node) === text) return;
  texts.set(node, text);
  node.textContent = text;
}

/** @type {WeakMap<Element, Map<string, string>>} */
const attributes = new WeakMap();

/** @param {Element} node @param {string} name @param {string} value */
export function setAttribute(node, name, value) {
  let known = attributes.get(node);
  if (!known) attributes.set(node, (known = new Map()));
  if (known.get(name) === value) return;
  known.set(name, value);
  node.setAttribute(name, value);
}

/** @param {HTMLElement} node @param {boolean} isHidden */
export function setHidden(node, isHidden) {
  if (node.hidden !== isHidden) node.hidden = isHidden;
}

/** @param {HTMLElement | SVGElement} node @param {number} share 0 to 1, as the style sheet's --share */
export function setShare(node, share) {
  const value = share.toFixed(3);
  if (texts.get(node) === value) return;
  texts.set(node, value);
  node.style.setProperty("--share", value);
}

/** A number that links to the metric it is. @param {string} metric @param {string} [name] for tests and styles */
export const metricLink = (metric, name = "") => el("a", { href: metricUrl(metric), title: metric, ...(name ? { class: name } : {}) });

/**
 * The children of one element, one for each item, kept by key and changed in place.
 *
 * @template T, V
 */
export class Keyed {
  /**
   * @param {Element} parent
   * @param {(item: T) => V & {root: Element}} make
   * @param {(view: V & {root: Element}, item: T) => void} fill
   */
  constructor(parent, make, fill) {
    this.parent = parent;
    this.make = make;
    this.fill = fill;
    /** @type {Map<string, V & {root: Element}>} */
    this.views = new Map();
    /** @type {string[]} */
    this.order = [];
  }

  /** @param {T[]} items @param {(item: T) => string} keyOf unique among them; of two the later is left out */
  update(items, keyOf) {
    /** @type {string[]} */
    const order = [];
    const before = this.views;
    const now = new Map();
    for (const item of items) {
      const key = keyOf(item);
      if (now.has(key)) continue;
      const view = before.get(key) ?? this.make(item);
      now.set(key, view);
      order.push(key);
      this.fill(view, item);
    }
    for (const [key, view] of before) if (!now.has(key)) view.root.remove();
    this.views = now;
    if (order.length !== this.order.length || order.some((key, n) => key !== this.order[n])) this.#arrange(order);
    this.order = order;
  }

  /** @param {string[]} order */
  #arrange(order) {
    let next = this.parent.firstElementChild;
    for (const key of order) {
      const root = /** @type {V & {root: Element}} */ (this.views.get(key)).root;
      if (root === next) next = next.nextElementSibling;
      else this.parent.insertBefore(root, next);
    }
  }
}

/** Arrow keys move within a grid that is one stop of the Tab key. @param {HTMLElement} grid @param {string} item selector */
export function roving(grid, item) {
  /** @returns {HTMLElement[]} */
  const items = () => [...grid.querySelectorAll(item)].map((each) => /** @type {HTMLElement} */ (each)).filter((each) => each.offsetParent !== null);
  /** @param {HTMLElement} chosen */
  const stop = (chosen) => {
    for (const each of grid.querySelectorAll(`${item}[tabindex="0"]`)) each.setAttribute("tabindex", "-1");
    chosen.setAttribute("tabindex", "0");
  };
  grid.addEventListener("focusin", (event) => {
    if (event.target instanceof HTMLElement && event.target.matches(item)) stop(event.target);
  });
  grid.addEventListener("keydown", (event) => {
    const all = items();
    const at = all.findIndex((each) => each === document.activeElement);
    if (at < 0) return;
    const next = moved(event.key, at, all);
    if (next === undefined) return;
    event.preventDefault();
    next.focus();
  });
  return () => {
    if (!grid.querySelector(`${item}[tabindex="0"]`)) items()[0]?.setAttribute("tabindex", "0");
  };
}

/** @param {string} key @param {number} at @param {HTMLElement[]} all @returns {HTMLElement | undefined} */
function moved(key, at, all) {
  const top = all[0]?.offsetTop;
  const columns = Math.max(1, all.findIndex((each) => each.offsetTop !== top));
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  if (key === "Home") return all[0];
  if (key === "End") return all.at(-1);
  if (!(key in steps)) return undefined;
  return all[at + steps[/** @type {keyof typeof steps} */ (key)]];
}
