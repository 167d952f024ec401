/**
 * One reader's connection to the fabric: finds a gateway, follows topics, comes back after each loss.
 *
 * It shows nothing and keeps no messages; it calls `on.state(state, details)`, `on.message(push, live)` and
 * `on.topic(name, trouble)`. Every (re)connect starts at endpoints.json, because the box that was least
 * loaded a minute ago may be gone now.
 */

import { Backoff, nextState, parseEndpoints, parsePush, waitAfterLoss } from "./reader-core.js";

const LOOKUP_MS = 4000;
const SILENCE_MS = 60_000; // gateways send a heartbeat each 25 s
const REWIND = 20;

export class Feed {
  #sock = null;
  #timer = null; // the next attempt, or the silence watch
  #notice = null; // the `disconnect` push that announces a close
  #endpoints = null;
  #openedAt = 0;
  #failures = 0; // attempts since a connection was last open
  #refs = 0;
  #topics = new Map(); // topic → when it was subscribed, ms; Infinity before the answer
  #asked = new Map(); // ref → topic
  #alternates = [];

  /** `transports` is a list of sockjs-client's names; empty leaves the order to it. */
  constructor({ endpointsUrl, transports, on }) {
    this.endpointsUrl = endpointsUrl;
    this.transports = transports;
    this.on = on;
    this.state = "idle";
    this.backoff = new Backoff();
  }

  start() {
    this.#move("start");
    this.#attempt();
  }

  /** Follow a topic: now if the connection is open, and on each later connection. */
  follow(topic) {
    if (this.#topics.has(topic)) return;
    this.#topics.set(topic, Infinity);
    if (this.state === "open") this.#subscribe(topic);
  }

  leave(topic) {
    if (!this.#topics.delete(topic)) return;
    if (this.state === "open") this.#send({ action: "unsubscribe", topic });
  }

  /** Don't wait any longer: the network is back. */
  hurry() {
    if (this.state === "waiting") this.#retry();
  }

  #move(event, details = {}) {
    this.state = nextState(this.state, event);
    this.on.state(this.state, details);
  }

  #retry() {
    clearTimeout(this.#timer);
    this.#move("retry");
    this.#attempt();
  }

  async #attempt() {
    const endpoints = await this.#locate();
    if (endpoints === null || endpoints.gateways.length === 0) {
      this.#lost({ reason: "no gateway", floor: endpoints?.retryMs });
      return;
    }
    this.#endpoints = endpoints;
    this.#move("found", { region: endpoints.region, alternates: this.#alternates });
    // The first is the least loaded; each failure moves on to the next.
    this.#connect(endpoints.gateways[this.#failures % endpoints.gateways.length]);
  }

  /** Endpoints of this region, or of the first alternate that has gateways; null if nobody answers. */
  async #locate() {
    const home = await lookUp(this.endpointsUrl);
    if (home) this.#alternates = home.alternates;
    if (home?.gateways.length) return home;
    for (const { url } of this.#alternates) {
      const other = await lookUp(url);
      if (other?.gateways.length) return other;
    }
    return home;
  }

  #connect(url) {
    const options = this.transports.length ? { transports: this.transports } : {};
    let sock;
    try {
      sock = new window.SockJS(url, null, options);
    } catch (error) {
      this.#lost({ reason: error.message });
      return;
    }
    this.#sock = sock;
    this.#notice = null;
    this.#openedAt = 0;
    sock.onopen = () => sock === this.#sock && this.#opened();
    sock.onheartbeat = () => sock === this.#sock && this.#watch();
    sock.onmessage = (event) => sock === this.#sock && this.#heard(event.data);
    sock.onclose = (event) => sock === this.#sock && this.#lost(event);
  }

  #opened() {
    this.#openedAt = Date.now();
    this.#failures = 0;
    this.#asked.clear();
    this.#move("opened", { region: this.#endpoints.region, transport: this.#sock.transport });
    this.#watch();
    for (const topic of this.#topics.keys()) this.#subscribe(topic);
  }

  /** Start to count the silence afresh. */
  #watch() {
    clearTimeout(this.#timer);
    const sock = this.#sock;
    this.#timer = setTimeout(() => {
      this.#lost({ code: 1006, reason: "no heartbeat" });
      sock.close();
    }, SILENCE_MS);
  }

  #subscribe(topic) {
    const ref = ++this.#refs;
    this.#asked.set(ref, topic);
    this.#topics.set(topic, Infinity);
    this.#send({ action: "subscribe", topic, rewind: REWIND, ref });
  }

  #send(verb) {
    this.#sock.send(JSON.stringify(verb));
  }

  #heard(data) {
    this.#watch();
    const push = parsePush(data);
    if (push?.type === "message") this.#message(push);
    else if (push?.type === "subscribed") this.#subscribed(push);
    else if (push?.type === "error") this.#failed(push);
    else if (push?.type === "disconnect") this.#notice = push;
  }

  #message(push) {
    if (typeof push.id !== "string" || !this.#topics.has(push.topic)) return;
    this.on.message(push, push.published > this.#topics.get(push.topic));
  }

  #subscribed({ ref, topic }) {
    this.#asked.delete(ref);
    if (!this.#topics.has(topic)) return;
    this.#topics.set(topic, Date.now());
    this.on.topic(topic, "");
  }

  #failed({ ref, code, reason, temporary }) {
    const topic = this.#asked.get(ref);
    if (topic === undefined) return;
    this.#asked.delete(ref);
    this.on.topic(topic, `${reason} (${code})`);
    if (temporary) this.#subscribeLater(topic);
  }

  #subscribeLater(topic) {
    const sock = this.#sock;
    const again = () => {
      if (sock === this.#sock && this.state === "open" && this.#topics.has(topic)) this.#subscribe(topic);
    };
    setTimeout(again, 1000 + Math.random() * 4000);
  }

  /** The attempt or the connection is over: wait as the gateway asked, or stop. */
  #lost({ code = 1006, reason = "", floor = 0 }) {
    clearTimeout(this.#timer);
    this.#sock = null;
    this.#failures += 1;
    const openFor = this.#openedAt ? Date.now() - this.#openedAt : 0;
    const notice = this.#notice;
    this.#notice = null;
    this.#openedAt = 0;
    const wait = waitAfterLoss({ code, notice, openFor }, this.backoff, Math.random());
    const why = notice?.reason || reason;
    if (wait === null) {
      this.#move("refused", { reason: why });
      return;
    }
    const pause = Math.max(wait, floor);
    this.#move("lost", { reason: why, wait: pause });
    this.#timer = setTimeout(() => this.#retry(), pause);
  }
}

/** The endpoints at `url`, or null when there is no usable answer in time. */
async function lookUp(url) {
  try {
    const signal = AbortSignal.timeout(LOOKUP_MS);
    const answer = await fetch(url, { cache: "no-store", credentials: "omit", signal });
    // A region without a ready gateway says 503, and in the same document who has one.
    return answer.ok || answer.status === 503 ? parseEndpoints(await answer.json(), url) : null;
  } catch {
    return null;
  }
}
