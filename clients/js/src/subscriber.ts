/**
 * One tab's subscriptions and questions: their interests, the messages that they have had, and the page's events. Pure.
 *
 * Any handler of the page's may end any subscription, and all of them: before each call, the subscription is looked up
 * again.
 */

import { FabricError } from "./api.ts";
import type { Message, State, SubscribeOptions, Subscription, Token } from "./api.ts";
import { TOKEN_EXPIRED } from "./closing.ts";
import { isLogin } from "./conversation.ts";
import { dispatch } from "./notes.ts";
import type { Events, Handlers, Subscribed, ToConnection, ToTabs, Interest } from "./notes.ts";
import { MARKS } from "./requests.ts";
import { SeenMessages, identityText } from "./seen.ts";
import { isError } from "./wire.ts";
import type { GatewayPush, ErrorFields, Verb } from "./wire.ts";

const CLOSED: ErrorFields = { code: 0, reason: "the page has closed its connection" };

interface FollowedTopic {
  interest: Interest;
  handlers: Omit<SubscribeOptions<any>, "since" | "rewind">;
  seen: SeenMessages;
  position: string | null;
  /** The messages since the topic was subscribed, and its former position; null once all replayed ones have arrived. */
  batch: { since: string | null; messages: Message[] } | null;
}

interface PendingVerb {
  verb: Verb;
  resolve: (push: GatewayPush) => void;
  reject: (error: FabricError) => void;
}

interface SubscriberOptions {
  /** Tells this tab from the others. */
  id: string;
  token?: Token | null;
  /** Takes notes for the connection. */
  say: (note: ToConnection) => void;
  /** Takes the page's events. */
  notify: <Event extends keyof Events>(event: Event, value: Events[Event]) => void;
}

export class Subscriber {
  readonly id: string;
  token: Token | null;
  /** Since this tab was opened, for all its subscriptions. */
  readonly counts = { messages: 0, repeats: 0, gaps: 0 };
  #followed = new Map<string, FollowedTopic>(); // by key
  #asked = new Map<string, PendingVerb>(); // by key
  #leaving = new Map<string, { left: Promise<void>; resolve: () => void }>(); // by key
  #login: string | null = null; // the token with which the browser is logged in, from any tab
  #isClosed = false;
  #made = 0;
  #say;
  #notify;

  constructor({ id, token = null, say, notify }: SubscriberOptions) {
    this.id = id;
    this.token = token;
    this.#say = say;
    this.#notify = notify;
  }

  /** All interests and questions of this tab, for a connection that doesn't know it. Verbs may be repeated. */
  hello(): void {
    // The connection then never learns of ended ones.
    this.#hasLeft(this.#leaving.keys());
    const interests = [...this.#followed.values()].map(({ interest, position }) =>
      // Served topics continue from their positions; `rewind` is for beginnings.
      position === null ? interest : { ...interest, rewind: null, position },
    );
    this.#say({ t: "hello", interests, token: this.token !== null, login: this.#login });
    for (const [key, { verb }] of this.#asked) this.#say({ t: "ask", key, verb });
  }

  follow(topic: string, { since = null, rewind = null, ...handlers }: SubscribeOptions<any>): Subscription {
    const key = this.#newKey();
    const interest = { key, topic, position: since, rewind };
    const followed: FollowedTopic = { interest, handlers, seen: new SeenMessages(), position: since, batch: null };
    if (!this.#isClosed) {
      this.#followed.set(key, followed);
      this.#say({ t: "follow", interest });
    }
    return {
      topic,
      get position() {
        // Messages that the page hasn't got yet must be asked for again.
        return followed.batch ? followed.batch.since : followed.position;
      },
      unsubscribe: () => this.#leave(key),
    };
  }

  #leave(key: string): Promise<void> {
    if (!this.#followed.delete(key)) return this.#leaving.get(key)?.left ?? Promise.resolve();
    let resolve = () => {};
    const left = new Promise<void>((settle) => (resolve = settle));
    this.#leaving.set(key, { left, resolve });
    this.#say({ t: "leave", key });
    return left;
  }

  #hasLeft(keys: Iterable<string>): void {
    for (const key of [...keys]) {
      this.#leaving.get(key)?.resolve();
      this.#leaving.delete(key);
    }
  }

  /** The reply to `verb`; rejects with a FabricError. It waits for as long as there is no connection. */
  ask(verb: Verb): Promise<GatewayPush> {
    if (this.#isClosed) return Promise.reject(new FabricError(CLOSED));
    const key = this.#newKey();
    return new Promise((resolve, reject) => {
      this.#asked.set(key, { verb, resolve, reject });
      this.#say({ t: "ask", key, verb });
    });
  }

  #newKey(): string {
    this.#made += 1;
    return `${this.id}/${this.#made}`;
  }

  /** Log out, in all tabs. */
  logOut(): void {
    this.token = this.#login = null;
    this.#say({ t: "logout" });
  }

  /** The token with which the browser is logged in, as far as this tab knows. */
  get login(): string | null {
    return this.#login;
  }

  /** The present token; rejects if the page's function does. */
  async currentToken(): Promise<string | null> {
    return typeof this.token === "function" ? this.token() : this.token;
  }

  /** No more messages arrive. */
  close(): void {
    this.#isClosed = true;
    this.#say({ t: "bye", tab: this.id });
    for (const { reject } of this.#asked.values()) reject(new FabricError(CLOSED));
    this.#asked.clear();
    this.#hasLeft(this.#leaving.keys());
    this.#followed.clear();
  }

  /** A note from the connection. */
  note(note: ToTabs): void {
    if (!this.#isClosed) dispatch(this.#notes, note);
  }

  #notes: Handlers<ToTabs> = {
    state: ({ state, details }) => this.#notify("state", { state, ...details } as State),
    login: ({ user, expires_at: expiresAt }) => this.#notify("login", { user, expiresAt }),
    logout: ({ user, reason, code }) => {
      this.#login = null;
      // After a token has expired, its function may make another; and a page may just log in anew.
      const isLoggingIn = [...this.#asked.values()].some(({ verb }) => isLogin(verb));
      if (code !== TOKEN_EXPIRED && !isLoggingIn) this.token = null;
      this.#notify("logout", { user, reason, code });
    },
    token: ({ token }) => (this.#login = token),
    error: ({ error }) => this.#notify("error", new FabricError(error)),
    "token?": ({ question }) => {
      if (this.token !== null) this.#bringToken(question);
    },
    answer: ({ key, push }) => {
      const asked = this.#asked.get(key);
      this.#asked.delete(key);
      if (isError(push)) asked?.reject(new FabricError(push));
      else asked?.resolve(push);
    },
    left: ({ keys }) => this.#hasLeft(keys),
    push: ({ push, keys }) => {
      for (const followed of this.#of(push.topic, keys)) this.#pushed(followed, push);
    },
    subscribed: (note) => {
      for (const followed of this.#of(note.topic, note.keys)) this.#subscribed(followed, note);
    },
    refused: ({ topic, keys, error }) => {
      for (const followed of this.#of(topic, keys)) this.#refused(followed, error);
    },
  };

  async #bringToken(question: number | undefined): Promise<void> {
    let token: string | null = null;
    try {
      token = await this.currentToken();
    } catch (error) {
      if (this.#isClosed) return;
      const reason = `no token: ${(error as Error | undefined)?.message ?? error}`;
      this.#notify("error", new FabricError({ code: 101, reason, temporary: true }));
    }
    if (!this.#isClosed) this.#say({ t: "token", token, question });
  }

  /** The addressed subscriptions, as they are before any of them is called. */
  #of(topic: string, keys: string[] | null): FollowedTopic[] {
    const all = [...this.#followed.values()].filter(({ interest }) => interest.topic === topic);
    return keys ? all.filter(({ interest }) => keys.includes(interest.key)) : all;
  }

  /** Call one of its handlers, unless it has ended. */
  #call<Value>({ interest }: FollowedTopic, handler: ((value: Value) => void) | undefined, value: Value): void {
    if (this.#followed.has(interest.key)) call(handler, value);
  }

  #pushed(followed: FollowedTopic, push: GatewayPush): void {
    const { handlers, seen } = followed;
    if (typeof push.position === "string") followed.position = push.position;
    if (typeof push.id !== "string" || !seen.first(push.type === "message" ? push.id : `${push.id}${push.type}`)) {
      this.counts.repeats += 1;
      return;
    }
    const identity = identityText(push.id);
    if (push.type === "message") this.#message(followed, { ...push, identity } as GatewayPush & Message);
    else this.#call(followed, handlers.onMark, { topic: push.topic, id: push.id, identity, mark: MARKS[push.type]!, at: push.at });
  }

  #message(followed: FollowedTopic, message: Message): void {
    const { handlers, batch } = followed;
    this.counts.messages += 1;
    this.#call(followed, handlers.onMessage, message);
    if (batch) batch.messages.push(message);
    else this.#call(followed, handlers.onMessages, [message]);
  }

  /** Keep replayed messages until all have arrived: the gateway answers later requests after them. */
  async #gather(followed: FollowedTopic, since: string | null): Promise<void> {
    followed.batch = { since, messages: [] };
    // If the ping is refused for the moment, live messages may be in the batch, too.
    await this.ask({ action: "ping" }).catch(() => {});
    const { messages } = followed.batch;
    followed.batch = null;
    if (messages.length) this.#call(followed, followed.handlers.onMessages, messages);
  }

  #subscribed(followed: FollowedTopic, { topic, recovered, resumed, position, isNews }: Subscribed): void {
    const { handlers } = followed;
    const since = followed.position;
    if (position !== null) followed.position = position;
    if (handlers.onMessages && !followed.batch) this.#gather(followed, since);
    if (!isNews) return;
    this.#call(followed, handlers.onSubscribed, { topic, resumed, recovered });
    if (!resumed || recovered) return;
    this.counts.gaps += 1;
    this.#call(followed, handlers.onGap, { topic });
  }

  #refused(followed: FollowedTopic, error: ErrorFields): void {
    const { interest, handlers } = followed;
    const problem = new FabricError({ ...error, topic: interest.topic });
    this.#call(followed, handlers.onError ?? ((error: FabricError) => this.#notify("error", error)), problem);
  }
}

/** Call a function of the page's, if there is one; its exceptions are reported by the browser. */
export function call<Value>(handler: ((value: Value) => void) | undefined, value: Value): void {
  try {
    handler?.(value);
  } catch (error) {
    // Node has no reportError(): there it is an uncaught exception.
    if ("reportError" in globalThis) reportError(error);
    else queueMicrotask(() => { throw error; });
  }
}
