/** What `connect()` returns: a page's front to its subscriber, and to the connection that its tabs share. */

import { FabricError, TRANSPORTS } from "./api.ts";
import type { ConnectOptions, Fabric, Login, Message, State, SubscribeOptions, Subscription, Token } from "./api.ts";
import { Connection } from "./connection.ts";
import { HEARTBEAT } from "./liveness.ts";
import type { Events } from "./notes.ts";
import { identityText } from "./seen.ts";
import { Subscriber, call } from "./subscriber.ts";
import { Tabs } from "./tabs.ts";

interface Marked {
  topic: string;
  id: string;
}

export class PageFabric implements Fabric {
  state: State = { state: "idle" };
  #handlers: { [Event in keyof Events]: Set<(value: Events[Event]) => void> } = { state: new Set(), login: new Set(), error: new Set() };
  #subscriber: Subscriber;
  #tabs: Tabs;
  #page = new AbortController();
  #isClosed = false;
  #logins = 0;

  constructor({ endpoints, token = null, transports = TRANSPORTS, share = true, heartbeat = {}, sockjs }: ConnectOptions) {
    if (!endpoints?.length) throw new TypeError("endpoints: the URL of an endpoints.json");
    const urls = [endpoints].flat().map((url) => new URL(url, document.baseURI).href);
    const connecting = { endpoints: urls, transports, sockjs, heartbeat: { ...HEARTBEAT, ...heartbeat } };
    this.#subscriber = new Subscriber({
      id: randomId(),
      token,
      say: (note) => this.#tabs.say(note),
      tell: (event, value) => (event === "state" ? this.#stateIs(value as State) : this.#emit(event, value)),
    });
    this.#tabs = new Tabs({
      name: `newsfabric ${urls} ${transports}`,
      subscriber: this.#subscriber,
      open: (tell) => new Connection({ ...connecting, tell }),
      share,
    });
    this.#watchPage();
    this.#come();
  }

  subscribe<Body = unknown>(topic: string, options: SubscribeOptions<Body> = {}): Subscription {
    if (typeof topic !== "string") throw new TypeError("a topic is a string");
    return this.#subscriber.follow(topic, options);
  }

  login(token: Token): Promise<Login> {
    return this.#logIn("login", token);
  }

  refresh(token: Token | null = this.#subscriber.token): Promise<Login> {
    return this.#logIn("refresh", token);
  }

  async #logIn(action: string, given: Token | null): Promise<Login> {
    this.#logins += 1;
    const number = this.#logins;
    this.#subscriber.token = given;
    const token = await this.#subscriber.currentToken();
    if (number !== this.#logins) throw new FabricError({ code: 0, reason: "superseded by another login" });
    const { user, expires_at: expiresAt } = await this.#subscriber.ask({ action, token });
    return { user, expiresAt };
  }

  async history(topic: string, { limit, before }: { limit?: number; before?: string } = {}): Promise<{ messages: Message[]; more: boolean }> {
    const { messages, more } = await this.#subscriber.ask({ action: "history", topic, limit, before });
    return { messages: messages.map((message: Message) => ({ ...message, identity: identityText(message.id) })), more };
  }

  ack(message: Marked): Promise<void> {
    return this.#mark("ack", message);
  }

  read(message: Marked): Promise<void> {
    return this.#mark("read", message);
  }

  dismiss(message: Marked): Promise<void> {
    return this.#mark("dismiss", message);
  }

  async #mark(action: string, { topic, id }: Marked): Promise<void> {
    await this.#subscriber.ask({ action, topic, id });
  }

  on<Event extends keyof Events>(event: Event, handler: (value: Events[Event]) => void): () => void {
    const handlers = this.#handlers[event];
    if (!handlers) throw new TypeError(`no such event: ${event}`);
    handlers.add(handler);
    return () => void handlers.delete(handler);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#tabs.leave();
    this.#subscriber.close();
    this.#stateIs({ state: "stopped", reason: "closed by the page" });
    this.#page.abort();
  }

  /** Connections repeat their state for each tab that comes. */
  #stateIs(told: State): void {
    const state = { ...told, tab: this.#tabs.role };
    if (this.#page.signal.aborted || JSON.stringify(state) === JSON.stringify(this.state)) return;
    this.state = state;
    this.#emit("state", state);
  }

  /** Any handler may take others off, add some, or close all. */
  #emit<Event extends keyof Events>(event: Event, value: Events[Event]): void {
    const { signal } = this.#page;
    if (signal.aborted) return;
    const handlers = this.#handlers[event];
    if (event === "error" && handlers.size === 0) console.warn("newsfabric:", value);
    for (const handler of [...handlers]) if (handlers.has(handler) && !signal.aborted) call(handler, value);
  }

  /** Sleep, networks and tabs that come and go. */
  #watchPage(): void {
    const { signal } = this.#page;
    const tabs = this.#tabs;
    document.addEventListener("visibilitychange", () => tabs.hide(document.hidden), { signal });
    document.addEventListener("resume", () => tabs.recheck(), { signal });
    // Offline, too: then the socket is asked for a sign of life, and mostly has none.
    for (const event of ["online", "offline"]) window.addEventListener(event, () => tabs.recheck(), { signal });
    // A page in the back/forward cache must hold neither lock nor socket.
    window.addEventListener("pagehide", () => tabs.leave(), { signal });
    window.addEventListener("pageshow", ({ persisted }) => persisted && this.#come(), { signal });
  }

  #come(): void {
    this.#tabs.join();
    this.#tabs.hide(document.hidden);
  }
}

function randomId(): string {
  // Not crypto.randomUUID(), which pages without TLS don't have.
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(36)).join("");
}
