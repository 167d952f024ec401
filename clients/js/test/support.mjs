/** Helpers of the tests: randomness that can be repeated, ids, and a fabric made of values. */

import { Subscriber } from "../src/subscriber.ts";
import { KnownRegions } from "../src/regions.ts";
import { Session } from "../src/session.ts";
import { TRANSPORTS } from "../src/api.ts";

/** A function that returns the same numbers in [0, 1) for the same seed (mulberry32). */
export function randomsOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** The id of message number `n`, routed at `at` (ms). */
export function idOf({ n, at }) {
  const clock = at.toString(16).padStart(12, "0");
  return `${clock.slice(0, 8)}-${clock.slice(8)}-7000-8000-${String(n).padStart(12, "0")}`;
}

export const HOME = "http://oregon/endpoints.json";
export const AWAY = "http://dublin/endpoints.json";

export function gatewayOf(name, weight = 1) {
  return { websocket: `ws://${name}/websocket`, sockjs: `http://${name}/sockjs`, weight };
}

/** The result of a discovery: [url, ms, names of gateways] each; null for names where nobody answers. */
export function answersOf(...found) {
  return found.map(([url, ms, names]) => ({
    url,
    ms,
    endpoints: names && { region: new URL(url).host, gateways: names.map((name) => gatewayOf(name)), alternates: [], retryMs: 0 },
  }));
}

export const BOTH = answersOf([HOME, 20, ["oregon-1"]], [AWAY, 80, ["dublin-1"]]);

/** A session with its effects in lists, and a clock that tests move. */
export class Rig {
  constructor({ random = () => 0.5, urls = [HOME, AWAY], emit = (effect) => this.keep(effect), ...options } = {}) {
    this.now = 1_735_689_600_000;
    this.effects = [];
    this.notes = [];
    this.tabs = [];
    this.regions = new KnownRegions(urls);
    this.session = new Session({ regions: this.regions, random, emit, transports: TRANSPORTS, ...options });
  }

  /** An effect goes into a list; the tabs hear of a note. */
  keep(effect) {
    if (effect.do !== "note") return void this.effects.push(effect);
    this.notes.push(effect.note);
    for (const tab of this.tabs) tab.note(effect.note);
  }

  /** The effects since the last time. */
  take() {
    this.do("turned");
    return this.effects.splice(0);
  }

  /** The verbs that were sent since the last time; other effects are dropped. */
  sent() {
    return this.take().filter((effect) => effect.do === "send").map(({ verb }) => verb);
  }

  /** The same without the signs of life that were asked for. */
  asked() {
    return this.sent().filter(({ action, ref }) => action !== "ping" || ref);
  }

  states() {
    return this.notes.filter(({ t }) => t === "state").map(({ state }) => state);
  }

  /** Call one of the session's methods, now. */
  do(method, ...values) {
    this.session[method](...values, this.now);
  }

  /** Let `ms` pass, waking the session when it is due and each 30 s, as its shell does. */
  pass(ms) {
    const end = this.now + ms;
    while (this.now < end) {
      const due = this.session.due() ?? Infinity;
      this.now = Math.min(end, Math.max(due, this.now + 1), this.now + 30_000);
      this.session.wake(this.now);
    }
  }

  /** Up to an open connection to the first candidate, its verbs not yet taken. */
  connect(answers = BOTH) {
    this.do("start");
    this.do("discovered", answers);
    this.do("opened", "websocket");
    return this;
  }

  /** The same for a session that waited, and has just asked the regions again. */
  connectAgain(answers = BOTH) {
    this.take();
    this.do("discovered", answers);
    this.do("opened", "websocket");
  }

  /** Answer the verbs that were sent, and those that the answers bring about, as a gateway does without news. */
  obey() {
    for (let verbs = this.sent(); verbs.length; verbs = this.sent()) {
      for (const verb of verbs) {
        if (verb.action === "subscribe") this.subscribed(verb, { recovered: verb.position !== undefined });
        if (verb.action === "unsubscribe") this.push({ type: "unsubscribed", ref: verb.ref, topic: verb.topic });
        if (verb.action === "ping") this.push({ type: "pong", ref: verb.ref });
      }
    }
  }

  push(push) {
    this.do("heard");
    this.do("push", push);
  }

  /** The gateway's answer to the last subscribe of `topic`. */
  subscribed(verb, fields = {}) {
    this.push({ type: "subscribed", ref: verb.ref, topic: verb.topic, recovered: false, position: "p0", ...fields });
  }

  /** A tab on this session, and the events of its page. */
  tab(id, token = null, say = (note) => this.do("note", note)) {
    const heard = [];
    const tab = new Subscriber({ id, token, say, notify: (event, value) => heard.push([event, value]) });
    this.tabs.push(tab);
    return { tab, heard };
  }
}
