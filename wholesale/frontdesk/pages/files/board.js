/**
 * The operations board: shows each received document, and its age.
 *
 * Decisions are in modules without a DOM (document, words, layout, series), appearance in modules with
 * one. Documents may arrive faster than they are drawn; the newest is drawn next.
 */

import { mergedEvents } from "./board-document.js";
import { byId, el, setAttribute, setHidden, setText } from "./board-dom.js";
import { BoardFeed } from "./board-feed.js";
import { Inspector } from "./board-inspector.js";
import { EventList, growOlder, Head, now, RegionList, ShovelList } from "./board-lists.js";
import { BoardMap } from "./board-map.js";
import { PlotWall } from "./board-plots.js";
import { ago, span, verdict } from "./board-words.js";

/** @import {BoardDocument} from "./board-document.js" */
/** @import {Link} from "./board-feed.js" */

const AGES_MS = 1000;

/** @type {BoardDocument | null} */
let shown = null;
/** The time of its arrival, by performance.now(). */
let cameAt = 0;
/** The steps that are left to draw a document. @type {(() => void)[]} */
let steps = [];
/** True if a newer document has arrived meanwhile. */
let isDue = false;
/** @type {Link} */
let link = { state: "asking", reason: "", retryAt: 0 };
let lostAt = 0;

const inspector = new Inspector();
/** @type {(kind: "box" | "service" | "cluster" | "shovel", key: string) => void} */
const open = (kind, key) => inspector.open(kind, key);
const head = new Head(open);
const regions = new RegionList(open);
const map = new BoardMap(open);
const shovels = new ShovelList(open);
const events = new EventList();
const plots = new PlotWall();
const feed = new BoardFeed(onDocument, onLink);

/** @param {BoardDocument} document @param {boolean} anew */
function onDocument(document, anew) {
  // Another frontdesk behind the same address numbers its events in its own way.
  const isOther = shown !== null && shown.frontdesk !== document.frontdesk;
  document.events = mergedEvents(shown?.events ?? [], document.events, anew || isOther);
  shown = document;
  cameAt = performance.now();
  if (steps.length) return void (isDue = true);
  steps = stepsOf(document);
  requestAnimationFrame(work);
}

/** Run a step in each frame, so that no frame is late; the first time all steps, to show the board soon. */
function work() {
  const isFirst = document.body.dataset.shown !== "true";
  try {
    do steps.shift()?.();
    while (isFirst && steps.length);
    if (isFirst) reveal();
  } finally {
    // A step that fails must not stop those after it, nor the documents after this one.
    if (!steps.length && isDue && shown) {
      isDue = false;
      steps = stepsOf(shown);
    }
    if (steps.length) requestAnimationFrame(work);
  }
}

/** @param {BoardDocument} found @returns {(() => void)[]} */
function stepsOf(found) {
  return [
    () => {
      now.ms = found.now_ms;
      setText(byId("frontdesk"), found.frontdesk);
      setText(byId("version"), found.version);
      head.update(found);
      const title = `${verdict(found).text} – newsfabric`;
      if (document.title !== title) document.title = title;
      inspector.update(found);
      events.update(found.events);
    },
    () => map.update(found),
    ...regions.steps(found),
    () => {
      shovels.update(found);
      plots.regions(found.regions.map(({ name }) => name));
      showAges();
    },
  ];
}

function reveal() {
  document.body.dataset.shown = "true";
  setHidden(byId("board"), false);
  setHidden(byId("asking"), true);
  performance.mark("board-shown");
  plots.start();
}

/** @param {Link} found */
function onLink(found) {
  if (found.state === "lost" && link.state !== "lost") lostAt = performance.now();
  link = found;
  setAttribute(byId("link"), "data-state", found.state);
  setHidden(byId("lost"), found.state !== "lost");
  setHidden(byId("login"), found.state !== "locked");
  if (found.state === "locked") {
    setHidden(byId("asking"), true);
    byId("token").focus();
  }
  if (found.state === "lost") showOthers();
  setHidden(byId("operator"), !feed.operator || found.state === "locked");
  setText(byId("operator-says"), feed.operator);
  if (found.state === "live") setText(byId("lost-says"), "");
  showAges();
}

/** The boards of other regions, which may know more than this one now does. */
function showOthers() {
  const others = (shown?.regions ?? []).filter(({ name, board_url: url }) => name !== shown?.region && url);
  const links = others.map(({ name, board_url: url }) => el("a", { href: url, rel: "noreferrer" }, name));
  byId("others").replaceChildren(...links);
  setHidden(/** @type {HTMLElement} */ (byId("others").parentElement), links.length === 0);
}

function showAges() {
  const passed = shown ? performance.now() - cameAt : 0;
  document.body.dataset.stale = String(passed > 5000);
  if (shown) growOlder(regions, shown, passed);
  if (link.state === "live") setText(byId("link-says"), passed < 2500 ? "Live" : `Live, ${ago(passed)}`);
  else if (link.state === "lost") setText(byId("link-says"), `Lost for ${span(performance.now() - lostAt)}`);
  else setText(byId("link-says"), link.state === "locked" ? "Not logged in" : "Asking");
  if (link.state === "lost") showLoss(passed);
}

/** @param {number} passed ms since the last document */
function showLoss(passed) {
  const who = shown ? shown.frontdesk : "The frontdesk";
  const age = shown ? ` What you see is ${span(passed)} old.` : "";
  setText(byId("lost-says"), `${who} is lost: ${link.reason}.${age}`);
  const wait = Math.ceil((link.retryAt - performance.now()) / 1000);
  setText(byId("lost-retry"), wait > 0 ? `Trying again in ${wait} s.` : "Trying now.");
}

/** @param {SubmitEvent} event */
async function onLogin(event) {
  event.preventDefault();
  const field = /** @type {HTMLInputElement} */ (byId("token"));
  const token = field.value.trim();
  if (!token) return;
  try {
    const isOperator = await feed.login(token);
    setText(byId("login-trouble"), isOperator ? "" : "This token isn't an operator's, or it has expired.");
    if (isOperator) field.value = "";
  } catch (error) {
    setText(byId("login-trouble"), `No login: ${error instanceof Error ? error.message : error}`);
  }
}

async function onLogout() {
  try {
    await feed.logout();
    // The shown data must not stay in the page.
    location.reload();
  } catch (error) {
    setText(byId("operator-says"), `Not logged out: ${error instanceof Error ? error.message : error}`);
  }
}

byId("logout").addEventListener("click", () => void onLogout());
byId("login").addEventListener("submit", (event) => void onLogin(/** @type {SubmitEvent} */ (event)));
byId("retry").addEventListener("click", () => feed.again());
setInterval(showAges, AGES_MS);
feed.start();
