/** A dialog with all data of a box, service, cluster or shovel; it stays up to date. */

import { byId, el, Keyed, metricLink, setAttribute, setHidden, setText } from "./board-dom.js";
import { dateOf, now } from "./board-lists.js";
import { count, delay, figure, METRICS, metricOf, metricUrl, nodeState, nodeWords, rate, SHOVEL_WORDS, shovelRate, shovelState, span, stateNow, stateWords } from "./board-words.js";

/** @import {BoardDocument, Box, Cluster, Service, Shovel} from "./board-document.js" */

/** @typedef {"box" | "service" | "cluster" | "shovel"} Kind */
/** @typedef {{name: string, value: string, metric: string}} Fact */
/** @typedef {{title: string, kind: string, state: string, facts: Fact[], figures: Record<string, number>, shovels: Shovel[]}} Found */

export class Inspector {
  constructor() {
    this.dialog = /** @type {HTMLDialogElement} */ (byId("inspector"));
    this.title = byId("inspector-title");
    this.kind = byId("inspector-kind");
    /** @type {{kind: Kind, key: string} | null} */
    this.shown = null;
    /** @type {BoardDocument | null} */
    this.document = null;
    this.facts = new Keyed(byId("inspector-facts"), factRow, fillFact);
    this.figures = new Keyed(byId("inspector-figures"), factRow, fillFact);
    this.shovels = new Keyed(
      byId("inspector-shovels"),
      (/** @type {Shovel} */ { name }) => {
        const [way, state, age, found] = [el("td"), el("td"), metricLink(METRICS.canary), el("td", { class: "figure" })];
        return { root: el("tr", {}, el("th", { scope: "row" }, name), way, state, el("td", { class: "figure" }, age), found), way, state, age, found };
      },
      (view, shovel) => {
        const state = shovelState(shovel);
        setAttribute(view.root, "data-shovel", state);
        setText(view.way, `${shovel.source} → ${shovel.runs_on}`);
        setText(view.state, SHOVEL_WORDS[state] ?? "");
        setText(view.age, span(shovel.canary_age_ms));
        setText(view.found, shovelRate(shovel));
      },
    );
    byId("inspector-close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => (this.shown = null));
    // A click beside it closes it: the dialog itself is then the target, its content never is.
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
  }

  /** @param {Kind} kind @param {string} key a name, or a shovel's key */
  open(kind, key) {
    this.shown = { kind, key };
    if (!this.#fill()) return void (this.shown = null);
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
  }

  /** @param {BoardDocument} document */
  update(document) {
    this.document = document;
    if (this.shown) this.#fill();
  }

  /** @returns {boolean} whether there is such a thing */
  #fill() {
    const found = this.shown && this.document ? find(this.document, this.shown.kind, this.shown.key) : null;
    if (this.shown && !found) setText(this.kind, "no longer known");
    if (!found) return this.dialog.open;
    setText(this.title, found.title);
    setText(this.kind, found.kind);
    setAttribute(this.dialog, "data-state", found.state);
    this.facts.update(found.facts, ({ name }) => name);
    this.figures.update(
      Object.entries(found.figures).map(([name, value]) => ({ name, value: figure(name, value), metric: metricOf(name) })),
      ({ name }) => name,
    );
    this.shovels.update(found.shovels, ({ key }) => key);
    setHidden(byId("inspector-figures-part"), !Object.keys(found.figures).length);
    setHidden(byId("inspector-shovels-part"), !found.shovels.length);
    return true;
  }
}

/** @param {Fact} fact */
function factRow({ name }) {
  const value = el("a");
  return { root: el("div", {}, el("dt", {}, name), el("dd", {}, value)), value };
}

/** @param {{value: HTMLElement}} view @param {Fact} fact */
function fillFact({ value }, fact) {
  setText(value, fact.value);
  if (!fact.metric) return;
  setAttribute(value, "href", metricUrl(fact.metric));
  setAttribute(value, "title", fact.metric);
}

/** @param {string} name @param {string} value @param {string} [metric] @returns {Fact} */
const fact = (name, value, metric = "") => ({ name, value, metric });

/** @param {BoardDocument} document @param {Kind} kind @param {string} key @returns {Found | null} */
function find({ regions }, kind, key) {
  for (const region of regions) {
    if (kind === "shovel") {
      const shovel = region.shovels.find((each) => each.key === key);
      if (shovel) return aboutShovel(shovel);
      continue;
    }
    const box = region.boxes.find(({ name }) => name === key);
    if (box) return aboutBox(box, region.shovels.filter((each) => each.runs_on === key || each.source === key));
    const service = region.services.find(({ name }) => name === key);
    if (service) return aboutService(service);
    const cluster = region.clusters.find(({ name, nodes }) => name === key || nodes.some(({ node }) => node === key));
    if (cluster) return aboutCluster(cluster, regions.flatMap(({ shovels }) => shovels));
  }
  return null;
}

/** @param {Box | Service} process @returns {Fact[]} */
const about = (process) => [
  fact("State", stateWords(process)),
  fact("Version", process.version),
  fact("Started", process.started_ms ? `${dateOf(process.started_ms)}, ${span(Math.max(0, now.ms - process.started_ms))} ago` : "–"),
  fact("Last report", `${span(process.age_ms)} ago`),
];

/** @param {Box} box @param {Shovel[]} shovels @returns {Found} */
const aboutBox = (box, shovels) => ({
  title: box.name,
  kind: `box, ${box.engine || "unknown"} engine`,
  state: stateNow(box),
  facts: [
    fact("Readers", `${count(box.readers)} of ${count(box.capacity)}`, METRICS.readers),
    fact("Messages", rate(box.messages_per_second), METRICS.messages_per_second),
    fact("Deliveries", rate(box.deliveries_per_second), METRICS.deliveries_per_second),
    fact("Connects", rate(box.connects_per_second), METRICS.connects_per_second),
    fact("Delay, median", delay(box.delay_p50_ms), METRICS.delay),
    fact("Delay, p99", delay(box.delay_p99_ms), METRICS.delay),
    ...about(box),
  ],
  figures: box.figures,
  shovels,
});

/** @param {Service} service @returns {Found} */
const aboutService = (service) => ({
  title: service.name,
  kind: service.kind,
  state: stateNow(service),
  facts: about(service),
  figures: service.figures,
  shovels: [],
});

/** @param {Cluster} cluster @param {Shovel[]} all @returns {Found} */
const aboutCluster = ({ name, nodes }, all) => ({
  title: name,
  kind: "RabbitMQ cluster",
  state: nodes.some((node) => ["down", "alarm"].includes(nodeState(node))) ? "gone" : nodes.some((node) => nodeState(node) === "unheard") ? "unheard" : "ready",
  facts: nodes.map((node) => fact(node.node, nodeState(node) === "alarm" ? `${nodeWords(node)}: takes no messages` : nodeWords(node))),
  figures: {},
  // Not those of boxes: there are two for each.
  shovels: all.filter((each) => (each.runs_on === name || each.source === name) && each.runs_on.includes("/")),
});

/** @param {Shovel} shovel @returns {Found} */
const aboutShovel = (shovel) => ({
  title: shovel.name,
  kind: "shovel",
  state: ["silent", "stopped"].includes(shovelState(shovel)) ? "gone" : "ready",
  facts: [
    fact("Way", `${shovel.source} → ${shovel.runs_on}`),
    fact("RabbitMQ says", shovel.state),
    fact("Canary", `${SHOVEL_WORDS[shovelState(shovel)]}, ${span(shovel.canary_age_ms)} old`, METRICS.canary),
    fact("Messages", shovelRate(shovel), METRICS.routed),
    fact("Made anew", `${count(shovel.restarts)} times`, METRICS.restarts),
  ],
  figures: {},
  shovels: [],
});
