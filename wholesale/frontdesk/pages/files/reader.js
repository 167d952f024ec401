/**
 * The reader's page: shows the fabric's messages. The rules are in reader-core.js, the connection is newsfabric's.
 *
 * Messages are collected on a board and shown together, some twenty times a second at most, so a burst
 * costs one rendering. Texts of a message reach the page through textContent and checked
 * attributes only, never as markup.
 */

import {
  HeadlineBoard,
  RecentDelays,
  TOPICS_MAX,
  delayText,
  isTopic,
  parseChoice,
  routedMs,
  storyView,
  transportsFrom,
} from "./reader-core.js";
import { TRANSPORTS, connect } from "./newsfabric.mjs";

const RENDER_MS = 50;
const ANNOUNCE_MS = 10_000; // a screen reader must get to the end of its sentence
const NOTICE_MS = 500; // a shorter wait isn't worth a line that comes and goes
const REWIND = 20;
const CHOICE_KEY = "newsfabric.topics";
const STATE_WORDS = {
  idle: "Starting",
  finding: "Looking for a gateway",
  connecting: "Connecting",
  open: "Live",
  waiting: "Reconnecting",
  stopped: "Stopped",
};

const byId = (id) => document.getElementById(id);
const byTestId = (id) => document.querySelector(`[data-testid="${id}"]`);
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const calendar = new Intl.DateTimeFormat("en-GB", { dateStyle: "full" });

const board = new HeadlineBoard();
const delays = new RecentDelays();
const views = new WeakMap(); // message → what it shows
let received = 0;
let paused = false;
let waiting = 0; // changes not shown while paused
let renderTimer = null;

/* ---- Stories ------------------------------------------------------------------------------- */

function onMessage(message, live) {
  received += 1;
  if (live) delays.add(Date.now() - routedMs(message));
  const outcome = board.offer(message, live);
  if (outcome !== "older") {
    waiting += 1;
    announceLater(message, live);
  }
  renderSoon();
}

function renderSoon() {
  renderTimer ??= setTimeout(render, RENDER_MS);
}

function render() {
  renderTimer = null;
  byTestId("count").textContent = received.toLocaleString();
  byTestId("delay").textContent = delayText(delays.median());
  byId("pause").textContent = paused ? (waiting ? `Resume (${waiting} new)` : "Resume") : "Pause";
  if (paused) return;
  waiting = 0;
  const stories = board.newest().map((story) => ({ ...story, view: viewOf(story.message) }));
  const figures = stories.filter((story) => story.view.figure).sort((a, b) => (a.id < b.id ? -1 : 1));
  reconcile(byId("figures"), figures);
  reconcile(byId("river"), stories.filter((story) => !story.view.figure));
  byId("figures").parentElement.hidden = figures.length === 0;
  byId("empty").hidden = stories.length > 0;
}

function viewOf(message) {
  if (!views.has(message)) views.set(message, storyView(message, location.href));
  return views.get(message);
}

/** Make the children of `list` show `stories`, in order; only changed ones are touched. */
function reconcile(list, stories) {
  const present = new Map([...list.children].map((element) => [element.dataset.story, element]));
  let next = list.firstElementChild;
  for (const story of stories) {
    const element = present.get(story.id) ?? newArticle(story.id);
    present.delete(story.id);
    // Filled before it is inserted: Chromium resolves dir="auto" then, and not again for text that comes later.
    if (element.dataset.id !== story.message.id) fill(element, story);
    if (element === next) next = next.nextElementSibling;
    else list.insertBefore(element, next);
  }
  for (const gone of present.values()) gone.remove();
}

function newArticle(id) {
  const element = byId("story-template").content.firstElementChild.cloneNode(true);
  element.dataset.story = id;
  const full = element.querySelector(".full");
  full.addEventListener("toggle", () => fillText(element));
  element.addEventListener("animationend", () => element.classList.remove("fresh"));
  return element;
}

function fill(element, { message, view, updates }) {
  const isUpdate = element.dataset.id !== undefined;
  element.dataset.topic = message.topic;
  element.dataset.key = message.key ?? "";
  element.dataset.version = view.version ?? "";
  element.dataset.id = message.id;
  element.lang = view.lang;
  element.dir = view.dir;
  put(element, ".section", view.section || message.topic);
  fillHeadline(element.querySelector(".headline"), view);
  put(element, ".value", view.figure);
  put(element, ".detail", view.detail);
  element.querySelector(".figure").hidden = !view.figure;
  element.querySelector(".figure").dataset.trend = view.trend;
  put(element, ".summary", view.summary);
  putOrHide(element, ".corrected", view.corrected);
  fillMeta(element, message, view, updates);
  element.paragraphs = view.paragraphs;
  element.querySelector(".full").hidden = view.paragraphs.length === 0;
  fillText(element);
  if (isUpdate) element.classList.add("fresh");
}

function fillHeadline(link, { headline, url }) {
  link.textContent = headline;
  if (url) link.href = url;
  else link.removeAttribute("href");
  link.rel = "noopener noreferrer";
}

function fillMeta(element, message, view, updates) {
  const time = element.querySelector("time");
  const published = new Date(Number.isFinite(message.published) ? message.published : Date.now());
  time.dateTime = published.toISOString();
  time.textContent = clock.format(published);
  putOrHide(element, ".version", updates > 1 || view.version > 1 ? updatedText(view) : "");
  put(element, ".byline", view.byline);
  put(element, ".topic", message.topic);
  put(element, ".origin", message.origin ? `from ${message.origin}` : "");
}

function updatedText({ version, figure }) {
  if (version === null) return "Updated";
  return figure ? `v${version}` : `Updated · version ${version}`;
}

/** The full text is long and rarely read: it is made when it is opened. */
function fillText(element) {
  if (!element.querySelector(".full").open) return;
  element.querySelector(".text").replaceChildren(...element.paragraphs.map(newParagraph));
}

function newParagraph({ lead, text }) {
  const strong = document.createElement("strong");
  strong.textContent = lead;
  const p = document.createElement("p");
  p.dir = "auto";
  p.append(...(lead ? [strong, document.createElement("br")] : []), text);
  return p;
}

function put(element, selector, text) {
  element.querySelector(selector).textContent = text;
}

function putOrHide(element, selector, text) {
  put(element, selector, text);
  element.querySelector(selector).hidden = !text;
}

/* ---- For those who listen to the page ------------------------------------------------------ */

let unannounced = null; // {stories, headline} since the last announcement
let announceTimer = null;

function announceLater(message, live) {
  if (!live || paused) return;
  const { headline } = viewOf(message);
  unannounced = { stories: (unannounced?.stories ?? 0) + 1, headline };
  announceTimer ??= setTimeout(announce, ANNOUNCE_MS);
}

function announce() {
  announceTimer = null;
  const { stories, headline } = unannounced;
  unannounced = null;
  byId("announcer").textContent = stories === 1 ? headline : `${stories} changes. The newest: ${headline}`;
}

/* ---- Connection ---------------------------------------------------------------------------- */

function onState({ state, region, transport, alternates, reason, wait }) {
  const word = byTestId("state");
  word.dataset.state = state;
  word.textContent = STATE_WORDS[state];
  if (region) byTestId("region").textContent = region;
  if (state === "open") byTestId("transport").textContent = transport;
  if (alternates) showOthers(alternates);
  if (state === "open") showNotice("");
  if (state === "waiting" && wait >= NOTICE_MS) showNotice(waitingText(reason, wait));
  if (state === "stopped") showNotice(`The gateway ended the connection (${reason || "no reason given"}). Reload the page to try again.`);
}

function waitingText(reason, wait) {
  const seconds = Math.max(1, Math.round(wait / 1000));
  return `Connection lost${reason ? ` (${reason})` : ""}. Trying again in ${seconds} s.`;
}

function showNotice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

function showOthers(alternates) {
  const links = alternates.map(({ region, url }) => {
    const link = document.createElement("a");
    link.href = new URL("/", url).href;
    link.textContent = region || link.hostname;
    return link;
  });
  byId("others").hidden = links.length === 0;
  byId("others").querySelector("span").replaceChildren(...links.flatMap((link) => [link, " "]));
}

/* ---- Topics -------------------------------------------------------------------------------- */

const boxes = () => [...byId("topic-form").querySelectorAll('input[name="topic"]')];
const defaults = boxes().map((box) => box.value);

function restoreChoice() {
  const { chosen, added } = parseChoice(recall(), defaults);
  for (const topic of added) addBox(topic);
  for (const box of boxes()) box.checked = chosen.includes(box.value);
}

/** Follow the checked topics, leave the others, and remember the choice. */
function applyChoice() {
  for (const box of boxes()) {
    if (box.checked) follow(box.value);
    else forget(box.value);
  }
  const values = boxes().map((box) => box.value);
  const chosen = boxes().filter((box) => box.checked).map((box) => box.value);
  remember({ chosen, added: values.filter((value) => !defaults.includes(value)) });
  byId("chosen-count").textContent = `${chosen.length} of ${values.length}`;
  renderSoon();
}

function follow(topic) {
  if (followed.has(topic)) return;
  let since = Infinity; // what was published earlier is not live
  const subscription = fabric.subscribe(topic, {
    // A mailbox opens with all that is kept for the user.
    rewind: topic.startsWith("user.") ? null : REWIND,
    onMessage: (message) => onMessage(message, routedMs(message) > since),
    onSubscribed: () => {
      since = Date.now();
      showTrouble(topic, "");
    },
    onGap: () => showNotice("Some headlines may be missing: the connection was away for too long. Reload the page to see what there is."),
    onError: ({ message, code }) => showTrouble(topic, `${message} (${code})`),
  });
  followed.set(topic, subscription);
}

function forget(topic) {
  followed.get(topic)?.unsubscribe();
  followed.delete(topic);
  board.drop(topic);
  showTrouble(topic, "");
}

function addBox(topic) {
  const label = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.name = "topic";
  box.value = topic;
  box.checked = true;
  label.append(box, ` ${topic}`);
  byId("added").append(label);
  byId("added").hidden = false;
}

function onAdd(event) {
  event.preventDefault();
  const field = byId("new-topic");
  const topic = field.value.trim();
  const known = boxes().find((box) => box.value === topic);
  const trouble = troubleWith(topic);
  byId("new-topic-trouble").textContent = trouble;
  if (trouble) return;
  if (known) known.checked = true;
  else addBox(topic);
  field.value = "";
  applyChoice();
}

function troubleWith(topic) {
  if (!isTopic(topic)) return "A topic is words joined by dots, such as news.local.";
  if (boxes().length >= TOPICS_MAX) return `More than ${TOPICS_MAX} topics are not possible.`;
  return "";
}

/** The gateway's word on a topic, beside its box; empty when all is well. */
function showTrouble(topic, trouble) {
  const label = boxes().find((box) => box.value === topic)?.parentElement;
  if (!label) return;
  label.querySelector(".trouble")?.remove();
  if (!trouble) return;
  const note = document.createElement("span");
  note.className = "trouble";
  note.textContent = ` ${trouble}`;
  label.append(note);
}

// Storage may be denied (private windows); the page then starts from the defaults each time.
function recall() {
  try {
    return localStorage.getItem(CHOICE_KEY);
  } catch {
    return null;
  }
}

function remember(choice) {
  try {
    localStorage.setItem(CHOICE_KEY, JSON.stringify(choice));
  } catch {
    // Only the convenience is lost.
  }
}

/* ---- Login --------------------------------------------------------------------------------- */

/** Log in with the token, and read its user's mailbox. The token is kept nowhere: a reload forgets it. */
async function onLogin(event) {
  event.preventDefault();
  const field = byId("token");
  try {
    const { user } = await fabric.login(field.value.trim());
    field.value = "";
    byId("login-state").textContent = `Logged in as ${user}.`;
    followOwn(`user.${user}`);
  } catch (error) {
    byId("login-state").textContent = error.message;
  }
}

function followOwn(topic) {
  const known = boxes().find((box) => box.value === topic);
  if (known) known.checked = true;
  else addBox(topic);
  applyChoice();
}

/* ---- Start --------------------------------------------------------------------------------- */

const fabric = connect({
  endpoints: "/endpoints.json",
  transports: transportsFrom(location.search, TRANSPORTS),
  sockjs: "/static/sockjs.min.js",
});
const followed = new Map(); // topic → subscription

function togglePause() {
  paused = !paused;
  byId("pause").classList.toggle("paused", paused);
  renderSoon();
}

byId("today").textContent = calendar.format(Date.now());
byId("topics").open = matchMedia("(min-width: 62rem)").matches;
byId("pause").addEventListener("click", togglePause);
byId("topic-form").addEventListener("change", (event) => event.target.name === "topic" && applyChoice());
byId("topic-form").addEventListener("submit", onAdd);
byId("login-form").addEventListener("submit", onLogin);
fabric.on("state", onState);

restoreChoice();
applyChoice();
