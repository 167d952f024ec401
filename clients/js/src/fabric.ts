/** The result of `connect()`: a page's interface to its subscriber, and to the connection that its tabs share. */

import { FabricError, TRANSPORTS } from "./api.ts";
import type { ConnectOptions, Fabric, Login, Message, Page, State, Statistics, SubscribeOptions, Subscription, Token } from "./api.ts";
import { SharedConnection } from "./connection.ts";
import { HEARTBEAT } from "./liveness.ts";
import type { Events, ToConnection } from "./notes.ts";
import { checkConnect, checkSubscribe, checkTopic } from "./options.ts";
import { urlOf } from "./regions.ts";
import { identityText } from "./seen.ts";
import { Subscriber, call } from "./subscriber.ts";
import { Tabs, isHidden } from "./tabs.ts";
import { within } from "./verdicts.ts";

const NOBODY = { type: "error", code: 0, reason: "there is no browser here, and no WebSocket was given: nothing is asked" };
const NOT_OPEN = { code: 100, reason: "no gateway is connected just now, and no frontdesk answers", temporary: true };
const HISTORY_MS = 20_000; // a frontdesk gives its gateway 15 s

interface Marked {
  topic: string;
  id: string;
}

export class PageFabric implements Fabric {
  state: State = { state: "idle" };
  #handlers: { [Event in keyof Events]: Set<(value: Events[Event]) => void> } = { state: new Set(), login: new Set(), logout: new Set(), error: new Set() };
  #subscriber: Subscriber;
  #tabs: Tabs | null = null; // where there is nobody to read anything
  #page = new AbortController();
  #isClosed = false;
  #logins = 0;
  #urls: string[] = [];
  #connections = { connections: 0, losses: 0 };

  constructor(options: ConnectOptions) {
    checkConnect(options);
    const { endpoints, token = null, transports = TRANSPORTS, share = true, heartbeat = {}, sockjs, WebSocket, debug = false } = options;
    const page = globalThis.document;
    this.#subscriber = new Subscriber({
      id: randomId(),
      token,
      say: (note) => (this.#tabs ? this.#tabs.say(note) : this.#toNobody(note)),
      notify: (event, value) => (event === "state" ? this.#stateIs(value as State) : this.#emit(event, value)),
    });
    // A server that renders pages: their readers' browsers connect.
    if (!page && !WebSocket) return;
    const urls = (this.#urls = [endpoints].flat().map((url) => absolute(url, page?.baseURI)));
    // sockjs-client is loaded by a script of the page.
    const usable = page || typeof sockjs === "function" ? transports : transports.filter((name) => name === "websocket");
    const connecting = { endpoints: urls, transports: usable, sockjs, heartbeat: { ...HEARTBEAT, ...heartbeat }, WebSocket, log: logOf(debug) };
    this.#tabs = new Tabs({
      name: `newsfabric ${urls} ${transports}`,
      subscriber: this.#subscriber,
      open: (notify) => new SharedConnection({ ...connecting, notify }),
      share: share && Boolean(page),
    });
    if (page) this.#watchPage(page, this.#tabs);
    this.#come();
  }

  subscribe<Body = unknown>(topic: string, options: SubscribeOptions<Body> = {}): Subscription {
    checkSubscribe(topic, options);
    return this.#subscriber.follow(topic, options);
  }

  login(token: Token): Promise<Login> {
    return this.#answer(this.#logIn("login", token));
  }

  logout(): void {
    this.#logins += 1;
    this.#subscriber.logOut();
  }

  refresh(token: Token | null = this.#subscriber.token): Promise<Login> {
    return this.#answer(this.#logIn("refresh", token));
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

  get statistics(): Statistics {
    return { ...this.#connections, ...this.#subscriber.counts };
  }

  history(topic: string, options?: { limit?: number; before?: string }): Promise<{ messages: Message[]; more: boolean }>;
  history(topic: string, options: { limit?: number; after: string }): Promise<Page>;
  history(topic: string, { limit, before, after }: { limit?: number; before?: string; after?: string } = {}): Promise<{ messages: Message[]; more: boolean }> {
    return this.#answer(after === undefined ? this.#history(topic, limit, before) : this.#historyAfter(topic, limit, after));
  }

  async #history(topic: string, limit?: number, before?: string): Promise<{ messages: Message[]; more: boolean }> {
    checkTopic(topic);
    const { messages, more } = await this.#subscriber.ask({ action: "history", topic, limit, before });
    return { messages: messages.map(withIdentity), more };
  }

  /** Gateways answer that over HTTP alone, and frontdesks ask one on behalf of other pages. */
  async #historyAfter(topic: string, limit = 100, after: string): Promise<Page> {
    checkTopic(topic);
    if (!this.#tabs) throw new FabricError(NOBODY);
    const { gateway } = this.state;
    const { login } = this.#subscriber;
    const headers: Record<string, string> = login === null ? {} : { Authorization: `Bearer ${login}` };
    let refusal = NOT_OPEN;
    for (const base of gateway ? [gateway.replace(/^ws/, "http"), ...this.#urls] : this.#urls) {
      const url = new URL("history", base);
      url.search = String(new URLSearchParams({ topic, after, limit: String(limit) }));
      try {
        const [answer, page] = await within(HISTORY_MS, async (signal) => {
          const answer = await fetch(url, { cache: "no-store", credentials: "omit", headers, signal });
          return [answer, await answer.json()] as const;
        });
        const { messages, more, position, recovered } = page;
        if (answer.ok) return { messages: messages.map(withIdentity), more, position, recovered };
        if (page.type === "error") refusal = page;
        // Another frontdesk would answer the same.
        if (answer.status < 500 && page.type === "error" && !page.temporary) break;
      } catch {
        // The file is missing, or has other content.
      }
    }
    throw new FabricError({ ...refusal, topic });
  }

  ack(message: Marked): Promise<void> {
    return this.#answer(this.#mark("ack", message));
  }

  read(message: Marked): Promise<void> {
    return this.#answer(this.#mark("read", message));
  }

  dismiss(message: Marked): Promise<void> {
    return this.#answer(this.#mark("dismiss", message));
  }

  async #mark(action: string, { topic, id }: Marked): Promise<void> {
    await this.#subscriber.ask({ action, topic, id });
  }

  /** Without a browser, requests are refused, and leaving is done at once. */
  #toNobody(note: ToConnection): void {
    if (note.t === "leave") this.#subscriber.note({ t: "left", keys: [note.key] });
    if (note.t === "ask") this.#subscriber.note({ t: "answer", key: note.key, push: NOBODY });
  }

  /** A server that renders a page and doesn't await an answer must not end because of a missing one. */
  #answer<Value>(answer: Promise<Value>): Promise<Value> {
    if (!this.#tabs) answer.catch(() => {});
    return answer;
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
    this.#tabs?.leave();
    this.#subscriber.close();
    this.#stateIs({ state: "stopped", reason: "closed by the page" });
    this.#page.abort();
  }

  /** Connections repeat their state for each new tab. */
  #stateIs(reported: State): void {
    const state = { ...reported, tab: this.#tabs?.role };
    if (this.#page.signal.aborted || JSON.stringify(state) === JSON.stringify(this.state)) return;
    const [wasOpen, isOpen] = [this.state.state === "open", state.state === "open"];
    if (isOpen && !wasOpen) this.#connections.connections += 1;
    if (wasOpen && !isOpen && !this.#isClosed) this.#connections.losses += 1;
    this.state = state;
    this.#emit("state", state);
  }

  /** Any handler may remove others, add some, or close all. */
  #emit<Event extends keyof Events>(event: Event, value: Events[Event]): void {
    const { signal } = this.#page;
    if (signal.aborted) return;
    const handlers = this.#handlers[event];
    if (event === "error" && handlers.size === 0) console.warn("newsfabric:", value);
    for (const handler of [...handlers]) if (handlers.has(handler) && !signal.aborted) call(handler, value);
  }

  /** Sleep, networks and tabs that come and go. */
  #watchPage(page: Document, tabs: Tabs): void {
    const { signal } = this.#page;
    page.addEventListener("visibilitychange", () => tabs.hide(page.hidden), { signal });
    page.addEventListener("resume", () => tabs.recheck(), { signal });
    // Offline, too: then the socket is asked for a sign of life, and mostly gives none.
    for (const event of ["online", "offline"]) window.addEventListener(event, () => tabs.recheck(), { signal });
    // A page in the back/forward cache must hold neither lock nor socket.
    window.addEventListener("pagehide", () => tabs.leave(), { signal });
    window.addEventListener("pageshow", ({ persisted }) => persisted && this.#come(), { signal });
  }

  #come(): void {
    this.#tabs?.join();
    this.#tabs?.hide(isHidden());
  }
}

function absolute(text: string, base?: string): string {
  const url = urlOf(text, base);
  if (url === null) throw new TypeError(`endpoints: ${text} is no URL${base ? "" : ", and there is no page that it could be relative to"}`);
  return url;
}

function withIdentity(message: Message): Message {
  return { ...message, identity: identityText(message.id) };
}

function logOf(debug: boolean | ((line: string) => void)): ((line: string) => void) | undefined {
  if (typeof debug === "function") return debug;
  return debug ? (line) => console.debug("newsfabric", line) : undefined;
}

function randomId(): string {
  // Not crypto.randomUUID(), which pages without TLS lack.
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(36)).join("");
}
