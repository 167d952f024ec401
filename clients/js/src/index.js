/** newsfabric: news topics in a web page. `connect()` is all there is; its types and words are in newsfabric.d.ts. */

import { Connection } from "./connection.js";
import { Desk, FabricError, call } from "./desk.js";
import { HEARTBEAT } from "./session.js";
import { Tabs } from "./tabs.js";
import { TRANSPORTS } from "./transport.js";

/**
 * @import { ConnectOptions, State, Token } from "../newsfabric"
 * @import { Events, SubscribeOptions, Verb } from "./types"
 */

export { FabricError, TRANSPORTS };

/**
 * Follow topics of the fabric that has these `endpoints`. Never throws for what the network does.
 * @param {ConnectOptions} options
 */
export function connect(options) {
  return new Fabric(options);
}

/** @typedef {{topic: string, id: string}} Marked */

class Fabric {
  /** @type {{[Event in keyof Events]: Set<(value: Events[Event]) => void>}} */
  #handlers = { state: new Set(), login: new Set(), error: new Set() };
  #desk;
  #tabs;
  #page = new AbortController();

  /** @param {ConnectOptions} options */
  constructor({ endpoints, token = null, transports = TRANSPORTS, share = true, heartbeat = {}, sockjs }) {
    if (!endpoints?.length) throw new TypeError("endpoints: the URL of an endpoints.json");
    const urls = [endpoints].flat().map((url) => new URL(url, document.baseURI).href);
    const connecting = { endpoints: urls, transports, sockjs, heartbeat: { ...HEARTBEAT, ...heartbeat } };
    /** How things are, as the last `state` event said. */
    this.state = /** @type {State} */ ({ state: "idle" });
    this.#desk = new Desk({
      id: randomId(),
      token,
      say: (note) => this.#tabs.say(note),
      tell: (event, value) => (event === "state" ? this.#stateIs(/** @type {State} */ (value)) : this.#emit(event, value)),
    });
    this.#tabs = new Tabs({
      name: `newsfabric ${urls} ${transports}`,
      desk: this.#desk,
      open: (tell) => new Connection({ ...connecting, tell }),
      share,
    });
    this.#watchPage();
    this.#come();
  }

  /**
   * @param {string} topic
   * @param {SubscribeOptions<any>} [options]
   */
  subscribe(topic, options = {}) {
    if (typeof topic !== "string") throw new TypeError("a topic is a string");
    return this.#desk.follow(topic, options);
  }

  /** @param {Token} token */
  login(token) {
    return this.#logIn("login", token);
  }

  refresh(token = this.#desk.token) {
    return this.#logIn("refresh", token);
  }

  /**
   * @param {string} action
   * @param {Token | null} token
   */
  async #logIn(action, token) {
    this.#desk.token = token;
    const { user, expires_at: expiresAt } = await this.#desk.ask({ action, token: await this.#desk.currentToken() });
    return { user, expiresAt };
  }

  /**
   * @param {string} topic
   * @param {{limit?: number, before?: string}} [options]
   */
  async history(topic, { limit, before } = {}) {
    const { messages, more } = await this.#desk.ask({ action: "history", topic, limit, before });
    return { messages, more };
  }

  /** @param {Marked} message */
  ack(message) {
    return this.#mark("ack", message);
  }

  /** @param {Marked} message */
  read(message) {
    return this.#mark("read", message);
  }

  /** @param {Marked} message */
  dismiss(message) {
    return this.#mark("dismiss", message);
  }

  /**
   * @param {Verb["action"]} action
   * @param {Marked} message
   */
  async #mark(action, { topic, id }) {
    await this.#desk.ask({ action, topic, id });
  }

  /**
   * @template {keyof Events} Event
   * @param {Event} event
   * @param {(value: Events[Event]) => void} handler
   */
  on(event, handler) {
    const handlers = this.#handlers[event];
    if (!handlers) throw new TypeError(`no such event: ${event}`);
    handlers.add(handler);
    return () => void handlers.delete(handler);
  }

  close() {
    this.#tabs.leave();
    this.#desk.close();
    this.#stateIs({ state: "stopped", reason: "closed by the page" });
    this.#page.abort();
  }

  /**
   * Connections repeat their state for each tab that comes.
   * @param {State} told
   */
  #stateIs(told) {
    const state = { ...told, tab: this.#tabs.role };
    if (this.#page.signal.aborted || JSON.stringify(state) === JSON.stringify(this.state)) return;
    this.state = state;
    this.#emit("state", state);
  }

  /**
   * @template {keyof Events} Event
   * @param {Event} event
   * @param {Events[Event]} value
   */
  #emit(event, value) {
    if (this.#page.signal.aborted) return;
    if (event === "error" && this.#handlers.error.size === 0) console.warn("newsfabric:", value);
    for (const handler of this.#handlers[event]) call(handler, value);
  }

  /** Sleep, networks and tabs that come and go. */
  #watchPage() {
    const { signal } = this.#page;
    const tabs = this.#tabs;
    /** @type {(target: EventTarget, event: string, handler: (event: any) => void) => void} */
    const listen = (target, event, handler) => target.addEventListener(event, handler, { signal });
    listen(document, "visibilitychange", () => tabs.hide(document.hidden));
    listen(document, "resume", () => tabs.rouse());
    // Offline, too: then the socket is asked for a sign of life, and mostly has none.
    for (const event of ["online", "offline"]) listen(window, event, () => tabs.rouse());
    // A page in the back/forward cache must hold neither lock nor socket.
    listen(window, "pagehide", () => tabs.leave());
    listen(window, "pageshow", ({ persisted }) => persisted && this.#come());
  }

  #come() {
    this.#tabs.join();
    this.#tabs.hide(document.hidden);
  }
}

function randomId() {
  // Not crypto.randomUUID(), which pages without TLS don't have.
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(36)).join("");
}
