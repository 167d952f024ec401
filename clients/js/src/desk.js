/**
 * One tab's subscriptions: what they wish, what they have had, and what to tell the page. Pure.
 *
 * It speaks with the connection, its own or another tab's, in notes:
 *
 *   to it     {t: "hello", desk, wishes, token}   who is here, and whether it has a token to offer
 *             {t: "follow", wish}, {t: "leave", key}, {t: "ask", key, verb}, {t: "token", token}, {t: "bye", desk}
 *   from it   {t: "state" | "login" | "error" …}, {t: "subscribed" | "refused" | "push", topic, keys …},
 *             {t: "answer", key, push}, {t: "token?"}
 *
 * `keys` names the subscriptions that a note is for; null means all of its topic.
 */

import { MARKS } from "./requests.js";
import { Seen } from "./seen.js";

/**
 * @import { Ask, Handlers, Note, PageHandlers, Push, Refusal, Served, SubscribeOptions, Tell, Verb, Wish } from "./types"
 * @import { Token } from "../newsfabric"
 */

/** What the gateway, or this library, refuses: `code` as in docs/protocol.md; `temporary` says that it may work later. */
export class FabricError extends Error {
  /** @param {Refusal} refusal */
  constructor({ code, reason, temporary = false, topic }) {
    super(reason || `error ${code}`);
    this.name = "FabricError";
    this.code = code;
    this.temporary = temporary;
    this.topic = topic;
  }
}

/** @typedef {{wish: Wish, handlers: PageHandlers, seen: Seen, position: string | null}} Subscription */

export class Desk {
  /** @type {Map<string, Subscription>} */
  #subscriptions = new Map(); // by key
  /** @type {Map<string, {verb: Verb, resolve: (push: Push) => void, reject: (error: FabricError) => void}>} */
  #asked = new Map(); // by key
  #made = 0;

  /**
   * `id` tells this tab from the others; `say` takes notes for the connection, `tell(event, value)` what the page
   * may hear. `token` is a string or a function that returns one or a promise of one; null if there is none.
   * @param {{id: string, token?: Token | null, say: (note: Ask) => void, tell: Tell}} options
   */
  constructor({ id, token = null, say, tell }) {
    this.id = id;
    this.token = token;
    this.say = say;
    this.tell = tell;
  }

  /** Everything this tab wishes and asks, for a connection that doesn't know it. Verbs may be repeated. */
  hello() {
    const wishes = [...this.#subscriptions.values()].map(({ wish, position }) =>
      // What was served goes on where it was; `rewind` is for beginnings.
      position === null ? wish : { ...wish, rewind: null, position },
    );
    this.say({ t: "hello", desk: this.id, wishes, token: this.token !== null });
    for (const [key, { verb }] of this.#asked) this.say({ t: "ask", key, verb });
  }

  /**
   * @param {string} topic
   * @param {SubscribeOptions<any>} options
   */
  follow(topic, { since = null, rewind = null, ...handlers }) {
    const key = this.#key();
    const wish = { key, topic, position: since, rewind };
    /** @type {Subscription} */
    const subscription = { wish, handlers, seen: new Seen(), position: since };
    this.#subscriptions.set(key, subscription);
    this.say({ t: "follow", wish });
    return {
      topic,
      get position() {
        return subscription.position;
      },
      unsubscribe: () => {
        if (this.#subscriptions.delete(key)) this.say({ t: "leave", key });
      },
    };
  }

  /**
   * The reply to `verb`; rejects with a FabricError. It waits for as long as there is no connection.
   * @param {Verb} verb
   * @returns {Promise<Push>}
   */
  ask(verb) {
    const key = this.#key();
    return new Promise((resolve, reject) => {
      this.#asked.set(key, { verb, resolve, reject });
      this.say({ t: "ask", key, verb });
    });
  }

  #key() {
    this.#made += 1;
    return `${this.id}/${this.#made}`;
  }

  /** The present token; rejects if the page's function does. */
  async currentToken() {
    return typeof this.token === "function" ? this.token() : this.token;
  }

  /** Nothing more will come. */
  close() {
    this.say({ t: "bye", desk: this.id });
    const error = new FabricError({ code: 0, reason: "the page has closed its connection" });
    for (const { reject } of this.#asked.values()) reject(error);
    this.#asked.clear();
    this.#subscriptions.clear();
  }

  /**
   * The connection says something.
   * @param {Note} note
   */
  note(note) {
    /** @type {((note: any) => void) | undefined} */ (this.#notes[note.t])?.(note);
  }

  /** @type {Handlers<Note>} */
  #notes = {
    state: ({ state, details }) => this.tell("state", /** @type {import("./types").State} */ ({ state, ...details })),
    login: ({ user, expires_at: expiresAt }) => this.tell("login", { user, expiresAt }),
    error: ({ error }) => this.tell("error", new FabricError(error)),
    "token?": () => void (this.token === null || this.#bringToken()),
    answer: (note) => this.#answered(note),
    push: ({ push, keys }) => {
      for (const subscription of this.#of(push.topic, keys)) this.#pushed(subscription, push);
    },
    subscribed: (note) => {
      for (const subscription of this.#of(note.topic, note.keys)) this.#subscribed(subscription, note);
    },
    refused: ({ topic, keys, error }) => {
      for (const subscription of this.#of(topic, keys)) this.#refused(subscription, error);
    },
  };

  async #bringToken() {
    /** @type {unknown} */
    let token = null;
    try {
      token = await this.currentToken();
    } catch (thrown) {
      const error = /** @type {Error | undefined} */ (thrown);
      this.tell("error", new FabricError({ code: 101, reason: `no token: ${error?.message ?? error}`, temporary: true }));
    }
    this.say({ t: "token", token });
  }

  /**
   * @param {string} topic
   * @param {string[] | null} keys
   */
  #of(topic, keys) {
    const all = [...this.#subscriptions.values()].filter(({ wish }) => wish.topic === topic);
    return keys ? all.filter(({ wish }) => keys.includes(wish.key)) : all;
  }

  /** @param {{key: string, push: Push}} note */
  #answered({ key, push }) {
    const asked = this.#asked.get(key);
    this.#asked.delete(key);
    if (push.type === "error") asked?.reject(new FabricError(/** @type {any} */ (push)));
    else asked?.resolve(push);
  }

  /**
   * @param {Subscription} subscription
   * @param {Push} push
   */
  #pushed(subscription, push) {
    const { handlers, seen } = subscription;
    if (typeof push.position === "string") subscription.position = push.position;
    if (typeof push.id !== "string" || !seen.first(push.type === "message" ? push.id : `${push.id}${push.type}`)) return;
    if (push.type === "message") call(handlers.onMessage, /** @type {any} */ (push));
    else call(handlers.onMark, { topic: push.topic, id: push.id, mark: /** @type {import("./types").Mark["mark"]} */ (MARKS[push.type]), at: push.at });
  }

  /**
   * @param {Subscription} subscription
   * @param {Served} note
   */
  #subscribed(subscription, { topic, recovered, resumed, position, isNews }) {
    const { handlers } = subscription;
    if (position !== null) subscription.position = position;
    if (!isNews) return;
    call(handlers.onSubscribed, { topic, resumed, recovered });
    if (resumed && !recovered) call(handlers.onGap, { topic });
  }

  /**
   * @param {Subscription} subscription
   * @param {Refusal} error
   */
  #refused({ wish, handlers }, error) {
    const problem = new FabricError({ ...error, topic: wish.topic });
    if (handlers.onError) call(handlers.onError, problem);
    else this.tell("error", problem);
  }
}

/**
 * Call a function of the page's, if there is one; its faults are its own, and the browser's to report.
 * @template Value
 * @param {((value: Value) => void) | undefined} handler
 * @param {Value} value
 */
export function call(handler, value) {
  try {
    handler?.(value);
  } catch (error) {
    reportError(error);
  }
}
