/**
 * The decisions of the reader's page, without a browser: no DOM, no socket, no clock, no randomness.
 *
 * Time (`now`, ms since the epoch) and randomness (`random`, in [0, 1)) are arguments, so each rule can
 * be tested as a value. Messages are untrusted: for any input these functions return
 * bounded, harmless values and never throw.
 */

export const STORIES_MAX = 200;
export const TOPICS_MAX = 128; // the gateway's limit for one reader
const TEXT_MAX = 24_000; // characters of one text; bodies end at 64 KiB

const TOPIC = /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/;
const LANG = /^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$/;

/* ---- The address ------------------------------------------------------------------------------- */

/** The transports that `?transports=a,b` names; undefined (all may be used) if it names none of them. */
export function transportsFrom(query, transports) {
  const wanted = (new URLSearchParams(query).get("transports") ?? "").split(",");
  const chosen = transports.filter((name) => wanted.some((w) => w.trim() === name));
  return chosen.length ? chosen : undefined;
}

/** `text` as an absolute http(s) URL, or null. */
export function safeUrl(text, base) {
  if (typeof text !== "string" || text.length > 2048) return null;
  try {
    const url = new URL(text, base);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

/* ---- Topics -------------------------------------------------------------------------------- */

/** True if `name` is a topic: dotted words of A-Z a-z 0-9 _ -, at most 255 characters. */
export function isTopic(name) {
  return typeof name === "string" && name.length <= 255 && TOPIC.test(name);
}

/** The stored choice {chosen, added}; `defaults` are all chosen when nothing usable is stored. */
export function parseChoice(stored, defaults) {
  try {
    const { chosen, added } = JSON.parse(stored);
    const extra = unique(added.filter(isTopic)).filter((name) => !defaults.includes(name));
    const known = [...defaults, ...extra].slice(0, TOPICS_MAX);
    return { chosen: unique(chosen).filter((name) => known.includes(name)), added: extra };
  } catch {
    return { chosen: [...defaults], added: [] };
  }
}

/* ---- Stories ------------------------------------------------------------------------------- */

/**
 * The newest stories of the chosen topics: one for each (topic, key), at its highest version.
 *
 * A story keeps its place while it is updated: `placed` is the publication time of the version that
 * was newest when the reader began to follow. Bounded: the stories longest in place leave first.
 */
export class HeadlineBoard {
  constructor(limit = STORIES_MAX) {
    this.limit = limit;
    this.stories = new Map(); // story id → story
  }

  /**
   * Take a message; return its outcome: "new", "updated" or "older". No message is offered twice.
   * `live` is false for a message from before the reader followed the topic.
   */
  offer(message, live) {
    const id = storyId(message);
    const known = this.stories.get(id);
    if (known && !supersedes(message, known.message)) return "older";
    const published = Number.isFinite(message.published) ? message.published : 0;
    const placed = known && live ? known.placed : published;
    this.stories.set(id, { id, placed, message, updates: (known?.updates ?? 0) + Number(!isRepeat(message, known?.message)) });
    if (!known) this.#trim();
    return known ? "updated" : "new";
  }

  /** Forget a topic that is no longer followed, so that it can be followed afresh. */
  drop(topic) {
    for (const [id, story] of this.stories) {
      if (story.message.topic === topic) this.stories.delete(id);
    }
  }

  /** Stories, the last placed first. */
  newest() {
    return [...this.stories.values()].sort((a, b) => b.placed - a.placed || (a.id < b.id ? -1 : 1));
  }

  #trim() {
    if (this.stories.size <= this.limit) return;
    for (const story of this.newest().slice(this.limit)) this.stories.delete(story.id);
  }
}

/** Versions of one story share this; a message without a key is a story of its own. */
function storyId({ topic, key, id }) {
  return JSON.stringify([topic, key ?? null, key == null ? id : null]);
}

/** A higher version replaces a lower one, never the reverse; equal ones go by id, which sorts by arrival. */
function supersedes(message, current) {
  const [a, b] = [message.version ?? 0, current.version ?? 0];
  return a === b ? message.id > current.id : a > b;
}

/** The same version, published again: nothing to tell the reader of. Without versions each may be another. */
function isRepeat({ version }, current) {
  return version != null && version === current?.version;
}

/* ---- What a story shows -------------------------------------------------------------------- */

const RIGHT_TO_LEFT = ["Adlm", "Arab", "Hebr", "Mand", "Nkoo", "Rohg", "Samr", "Syrc", "Thaa"]; // scripts, by ISO 15924

/** The direction of a language; where none is named, or none that is known, that of the text. */
function directionOf(lang) {
  try {
    const { script } = new Intl.Locale(lang).maximize();
    return script ? (RIGHT_TO_LEFT.includes(script) ? "rtl" : "ltr") : "auto";
  } catch {
    return "auto";
  }
}

/**
 * The shown parts of a message, as bounded strings, for any body.
 * `figure` is a score, a price or a temperature; `trend` is "up", "down" or "".
 */
export function storyView(message, base) {
  const given = message.body;
  const body = given !== null && typeof given === "object" && !Array.isArray(given) ? given : { headline: given };
  const headline = text(body.headline, 300) || JSON.stringify(given ?? null).slice(0, 300);
  const lang = text(body.lang, 35);
  const change = changeOf(body.price);
  return {
    headline,
    summary: text(body.summary, 2000),
    section: [text(body.section, 60), text(body.title, 120)].filter(Boolean).join(" · "),
    lang: LANG.test(lang) ? lang : "",
    dir: directionOf(lang),
    byline: text(body.byline, 120),
    url: safeUrl(body.url, base),
    paragraphs: paragraphsOf(body),
    figure: text(body.score, 40) || number(body.price?.value ?? body.price) || number(body.temperature, " °C"),
    detail: change === null ? text(body.clock, 40) : changeText(change),
    trend: change > 0 ? "up" : change < 0 ? "down" : "",
    corrected: text(body.correction, 500),
    version: Number.isInteger(message.version) ? message.version : null,
  };
}

function number(value, unit = "") {
  if (!Number.isFinite(value)) return "";
  return value.toLocaleString("en", { maximumFractionDigits: 4 }).replace("-", "−") + unit;
}

/** The change of a price in per cent, or null. */
function changeOf(price) {
  return Number.isFinite(price?.change_percent) ? price.change_percent : null;
}

function changeText(change) {
  const sign = change > 0 ? "+" : change < 0 ? "−" : "";
  return `${sign}${number(Math.abs(change))} %`;
}

/** The full text as [{lead, text}…]: a live blog's posts, led by time and headline, then the paragraphs. */
function paragraphsOf(body) {
  const posts = listOf(body.posts)
    .slice(0, 200)
    .map((post) => ({
      lead: [text(post?.at, 20), text(post?.headline, 300)].filter(Boolean).join(" · "),
      text: text(post?.text, TEXT_MAX),
    }));
  const paragraphs = text(body.text, TEXT_MAX).split(/\n{2,}/).filter(Boolean);
  return [...posts, ...paragraphs.map((paragraph) => ({ lead: "", text: paragraph }))];
}

/* ---- Delay --------------------------------------------------------------------------------- */

/** The router's clock inside a message's id, in ms since the epoch; NaN if it is no id. Publishers' times are untrusted. */
export function routedMs(message) {
  const [, high, low] = /^([0-9a-f]{8})-([0-9a-f]{4})-7/.exec(text(message?.id, 36)) ?? [];
  return Number.parseInt(`${high}${low}`, 16);
}

/** The median of the last delays, for a display that doesn't twitch. */
export class RecentDelays {
  constructor(size = 21) {
    this.size = size;
    this.values = [];
  }

  add(ms) {
    this.values.push(ms);
    if (this.values.length > this.size) this.values.shift();
  }

  /** Whole ms; null before the first. Negative where the router's clock is ahead of ours. */
  median() {
    if (this.values.length === 0) return null;
    const sorted = [...this.values].sort((a, b) => a - b);
    return Math.round(sorted[sorted.length >> 1]);
  }
}

/** "12 ms", "1.4 s"; "–" for null. */
export function delayText(ms) {
  if (ms === null) return "–";
  return Math.abs(ms) < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/* ---- Small things -------------------------------------------------------------------------- */

function listOf(value) {
  return Array.isArray(value) ? value : [];
}

function unique(values) {
  return [...new Set(values)];
}

/** A string or a number as a trimmed string of at most `max` characters; anything else is "". */
function text(value, max) {
  if (typeof value !== "string" && typeof value !== "number") return "";
  return String(value).slice(0, max).trim();
}
