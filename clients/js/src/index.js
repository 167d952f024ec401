/** newsfabric: news topics in a web page. `connect()` is all there is; its types and words are in newsfabric.d.ts. */

import { Connection } from "./connection.js";
import { Desk, FabricError, call } from "./desk.js";
import { HEARTBEAT } from "./session.js";
import { Tabs } from "./tabs.js";
import { TRANSPORTS } from "./transport.js";

export { FabricError, TRANSPORTS };

/** Follow topics of the fabric that has these `endpoints`. Never throws for what the network does. */
export function connect(options) {
  return new Fabric(options);
}

class Fabric {
  #handlers = { state: new Set(), login: new Set(), error: new Set() };
  #desk;
  #tabs;
  #page = new AbortController();

  constructor({ endpoints, token = null, transports = TRANSPORTS, share = true, heartbeat = {}, sockjs }) {
    if (!endpoints?.length) throw new TypeError("endpoints: the URL of an endpoints.json");
    const urls = [endpoints].flat().map((url) => new URL(url, document.baseURI).href);
    const connecting = { endpoints: urls, transports, sockjs, heartbeat: { ...HEARTBEAT, ...heartbeat } };
    /** How things are, as the last `state` event said. */
    this.state = { state: "idle" };
    this.#desk = new Desk({
      id: randomId(),
      token,
      say: (note) => this.#tabs.say(note),
      tell: (event, value) => (event === "state" ? this.#stateIs(value) : this.#emit(event, value)),
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

  subscribe(topic, options = {}) {
    if (typeof topic !== "string") throw new TypeError("a topic is a string");
    return this.#desk.follow(topic, options);
  }

  async login(token) {
    this.#desk.token = token;
    const { user, expires_at: expiresAt } = await this.#desk.ask({ action: "login", token: await this.#desk.currentToken() });
    return { user, expiresAt };
  }

  async refresh(token = this.#desk.token) {
    this.#desk.token = token;
    const { user, expires_at: expiresAt } = await this.#desk.ask({ action: "refresh", token: await this.#desk.currentToken() });
    return { user, expiresAt };
  }

  async history(topic, { limit, before } = {}) {
    const { messages, more } = await this.#desk.ask({ action: "history", topic, limit, before });
    return { messages, more };
  }

  ack(message) {
    return this.#mark("ack", message);
  }

  read(message) {
    return this.#mark("read", message);
  }

  dismiss(message) {
    return this.#mark("dismiss", message);
  }

  async #mark(action, { topic, id }) {
    await this.#desk.ask({ action, topic, id });
  }

  on(event, handler) {
    const handlers = this.#handlers[event];
    if (!handlers) throw new TypeError(`no such event: ${event}`);
    handlers.add(handler);
    return () => handlers.delete(handler);
  }

  close() {
    this.#tabs.leave();
    this.#desk.close();
    this.#stateIs({ state: "stopped", reason: "closed by the page" });
    this.#page.abort();
  }

  /** Connections repeat their state for each tab that comes. */
  #stateIs(told) {
    const state = { ...told, tab: this.#tabs.role };
    if (this.#page.signal.aborted || JSON.stringify(state) === JSON.stringify(this.state)) return;
    this.state = state;
    this.#emit("state", state);
  }

  #emit(event, value) {
    if (this.#page.signal.aborted) return;
    if (event === "error" && this.#handlers.error.size === 0) console.warn("newsfabric:", value);
    for (const handler of this.#handlers[event]) call(handler, value);
  }

  /** Sleep, networks and tabs that come and go. */
  #watchPage() {
    const { signal } = this.#page;
    const tabs = this.#tabs;
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
