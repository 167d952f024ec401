/**
 * The topics of one connection, followed by any number of subscriptions in any number of tabs. Pure.
 *
 * Each topic is subscribed once at the gateway. Subscriptions have keys ("desk/number"); a wish is
 * {key, topic, position, rewind}. Who comes when the topic is already followed, and isn't by chance just where it is,
 * is late: it gets nothing until it has been subscribed as it wishes.
 *
 * topic's phase → event → phase:
 *
 *   away  --connected-->  asked  --subscribed-->  live
 *   live  --a wish comes late-->  asked            (left, subscribed for the newcomer, left, subscribed again)
 *   asked --refused, a login may mend it-->  refused  --logged in-->  asked
 *   asked --refused, temporary-->  again  --a moment later-->  asked
 *   any   --disconnected-->  away
 */

/** @import { Note, Push, Refusal, Verb, Wish } from "./types" */

/**
 * @typedef {object} Topic
 * @property {string} name
 * @property {"away" | "asked" | "live" | "refused" | "again"} phase
 * @property {Map<string, Wish>} wishes by key
 * @property {Wish | null} first until it is served
 * @property {Wish[]} late
 * @property {Wish | null} newcomer the late one whose wish is being served
 * @property {string[] | null} serving whom alone messages are for, at the moment
 * @property {string | null} position
 * @property {boolean} isExact no message has come since this position
 * @property {boolean} isSettling a pong is awaited, before a newcomer is welcomed
 * @property {Refusal} [error] the last one
 *
 * @typedef {{topic: Topic, what: string, key?: string, resumed?: boolean}} Asked
 */

const PUSHES = ["message", "acked", "read", "dismissed"];
const UNAUTHORIZED = 101;
const ALREADY = 105;
const EXPIRED = 109;
const BAD_POSITION = 112;

export class Topics {
  /** @type {Map<string, Topic>} */
  #topics = new Map(); // by name
  /** @type {Map<string, Asked>} */
  #asked = new Map(); // by ref
  #refs = 0;

  /**
   * `send` takes verbs for the gateway, `tell` notes for the tabs.
   * @param {{send: (verb: Verb) => void, tell: (note: Note) => void}} options
   */
  constructor({ send, tell }) {
    this.send = send;
    this.tell = tell;
  }

  /**
   * Serve `wish` from now on; `ready` says whether verbs can be sent.
   * @param {Wish} wish
   * @param {boolean} ready
   */
  follow(wish, ready) {
    const topic = this.#topics.get(wish.topic) ?? this.#begin(wish);
    if (topic.wishes.has(wish.key)) return;
    topic.wishes.set(wish.key, wish);
    if (wish === topic.first) {
      if (ready) this.#subscribe(topic);
    } else if (!isWhere(topic, wish)) {
      topic.late.push(wish);
      this.#settle(topic);
      if (topic.phase === "refused" && topic.error) this.tell({ t: "refused", topic: topic.name, keys: [wish.key], error: topic.error });
    }
  }

  /** @param {Wish} wish */
  #begin(wish) {
    /** @type {Topic} */
    const topic = {
      name: wish.topic,
      phase: "away",
      wishes: new Map(),
      first: wish,
      late: [],
      newcomer: null,
      serving: null,
      position: wish.position ?? null,
      isExact: true,
      isSettling: false,
    };
    this.#topics.set(wish.topic, topic);
    return topic;
  }

  /**
   * @param {string} key
   * @param {boolean} ready
   */
  leave(key, ready) {
    for (const topic of this.#topics.values()) {
      if (!topic.wishes.delete(key)) continue;
      topic.late = topic.late.filter((wish) => wish.key !== key);
      if (topic.wishes.size) return;
      this.#topics.delete(topic.name);
      if (ready) this.send({ action: "unsubscribe", topic: topic.name });
      return;
    }
  }

  /**
   * Everything that a tab follows: it is gone.
   * @param {string} desk
   * @param {boolean} ready
   */
  leaveAll(desk, ready) {
    const keys = [...this.#topics.values()].flatMap(({ wishes }) => [...wishes.keys()]);
    for (const key of keys.filter((one) => one.startsWith(`${desk}/`))) this.leave(key, ready);
  }

  connected() {
    for (const topic of this.#topics.values()) if (topic.phase === "away") this.#subscribe(topic);
  }

  disconnected() {
    this.#asked.clear();
    for (const topic of this.#topics.values()) {
      topic.phase = "away";
      if (topic.newcomer && topic.wishes.has(topic.newcomer.key)) topic.late.unshift(topic.newcomer);
      topic.newcomer = null;
      topic.isSettling = false;
    }
  }

  /** Try the refused ones again. */
  loggedIn() {
    this.#resume("refused");
  }

  /** Try those again that were refused for the moment, or never answered: a gateway in a hurry doesn't say to whom. */
  again() {
    this.#resume("again");
    this.#resume("asked");
  }

  /** @param {Topic["phase"]} phase */
  #resume(phase) {
    for (const topic of this.#topics.values()) if (topic.phase === phase) this.#subscribe(topic);
  }

  /**
   * Whether everything that is pushed to topic `name` comes, now or when it is caught up with.
   * @param {string} name
   */
  isServed(name) {
    const phase = this.#topics.get(name)?.phase;
    return phase === "live" || phase === "asked";
  }

  /**
   * Take a push that is about a topic of ours, and say whether it was.
   * @param {Push} push
   */
  push(push) {
    if (push.ref !== undefined && push.ref !== null) return this.#reply(push);
    if (!PUSHES.includes(push.type)) return false;
    const topic = this.#topics.get(push.topic);
    if (!topic) return true;
    // While a newcomer is served, positions are of its subscription, not of the one that stays.
    const position = topic.phase === "live" ? push.position : null;
    topic.isExact = typeof position === "string";
    if (topic.isExact) topic.position = position;
    this.tell({ t: "push", push: { ...push, position }, keys: topic.serving ?? served(topic) });
    return true;
  }

  /** @param {Push} push */
  #reply(push) {
    const asked = this.#asked.get(push.ref);
    if (!asked) return false;
    this.#asked.delete(push.ref);
    const { topic, what } = asked;
    if (this.#topics.get(topic.name) !== topic) return true;
    if (push.type === "unsubscribed") topic.serving = what === "make way" && asked.key ? [asked.key] : null;
    else if (push.type === "subscribed") this.#subscribed(asked, /** @type {any} */ (push));
    else if (push.type === "pong") this.#settled(topic);
    else if (push.type === "error") this.#refused(asked, /** @type {any} */ (push));
    return true;
  }

  /* ---- Subscribing ---- */

  /** @param {Topic} topic */
  #subscribe(topic) {
    topic.phase = "asked";
    topic.serving = null;
    const { first, position } = topic;
    // What has a position comes back, or asked for `since`; anything else begins as the first one wished.
    const resumed = position !== null;
    this.#say(topic, resumed ? { position } : { rewind: first?.rewind }, { what: "subscribe", resumed });
  }

  /**
   * @param {Topic} topic
   * @param {Partial<Wish>} wish
   * @param {Omit<Asked, "topic">} asked
   */
  #say(topic, { position, rewind }, asked) {
    /** @type {Verb} */
    const verb = { action: "subscribe", topic: topic.name };
    if (position != null) verb.position = position;
    if (rewind != null) verb.rewind = rewind;
    this.#ask(verb, { topic, ...asked });
  }

  /**
   * @param {Topic} topic
   * @param {string} what
   * @param {string} [key]
   */
  #leaveFor(topic, what, key) {
    this.#ask({ action: "unsubscribe", topic: topic.name }, { topic, what, key });
  }

  /**
   * @param {Verb} verb
   * @param {Asked} asked
   */
  #ask(verb, asked) {
    this.#refs += 1;
    const ref = `t${this.#refs}`;
    this.#asked.set(ref, asked);
    this.send({ ...verb, ref });
  }

  /**
   * Subscribe as `wish` says, for it alone, and then for all from where they were.
   * @param {Topic} topic
   * @param {Wish} wish
   */
  #welcome(topic, wish) {
    topic.phase = "asked";
    topic.newcomer = wish;
    this.#leaveFor(topic, "make way", wish.key);
    this.#say(topic, wish, { what: "welcome", key: wish.key, resumed: wish.position != null });
    this.#leaveFor(topic, "go on");
    this.#say(topic, { position: topic.position }, { what: "go on", resumed: true });
  }

  /**
   * @param {Asked} asked
   * @param {{recovered: boolean, position?: string | null}} push
   */
  #subscribed({ topic, what, key = "", resumed = false }, push) {
    const { recovered, position = null } = push;
    if (what === "welcome") {
      // Should this be all it gets, it comes back from here.
      if (topic.newcomer) topic.newcomer = { ...topic.newcomer, position, rewind: null };
      this.tell({ t: "subscribed", topic: topic.name, keys: [key], recovered, resumed, position, isNews: true });
      return;
    }
    topic.phase = "live";
    topic.newcomer = null;
    topic.first = null;
    topic.isExact = typeof position === "string";
    if (topic.isExact) topic.position = position;
    const isNews = what !== "go on" || !recovered;
    this.tell({ t: "subscribed", topic: topic.name, keys: served(topic), recovered, resumed, position: topic.position, isNews });
    this.#settle(topic);
  }

  /**
   * Before a newcomer is welcomed: let what the topic may still be catching up with come, so that it is where it seems.
   * @param {Topic} topic
   */
  #settle(topic) {
    if (topic.phase !== "live" || topic.late.length === 0 || topic.isSettling) return;
    topic.isSettling = true;
    this.#ask({ action: "ping" }, { topic, what: "settle" });
  }

  /** @param {Topic} topic */
  #settled(topic) {
    topic.isSettling = false;
    const next = topic.phase === "live" ? topic.late.shift() : undefined;
    if (next) this.#welcome(topic, next);
  }

  /**
   * @param {Asked} asked
   * @param {Refusal} error
   */
  #refused(asked, error) {
    const { topic, what, key = "" } = asked;
    if (error.code === BAD_POSITION) return this.#withoutPosition(asked);
    if (error.code === ALREADY) return topic.phase === "live" ? undefined : this.#subscribed(asked, { recovered: true });
    if (what === "welcome") return this.tell({ t: "refused", topic: topic.name, keys: [key], error });
    const mendable = error.code === UNAUTHORIZED || error.code === EXPIRED;
    topic.phase = error.temporary ? "again" : "refused";
    topic.newcomer = null;
    topic.error = error;
    this.tell({ t: "refused", topic: topic.name, keys: null, error });
    if (!error.temporary && !mendable) this.#topics.delete(topic.name);
    return undefined;
  }

  /**
   * Where we were is nothing that this fabric can have said: begin anew, and say that something may be missing.
   * @param {Asked} asked
   */
  #withoutPosition({ topic, what, key }) {
    const keys = key ? [key] : served(topic);
    this.tell({ t: "subscribed", topic: topic.name, keys, recovered: false, resumed: true, position: null, isNews: true });
    if (what === "welcome") return;
    topic.position = null;
    this.#subscribe(topic);
  }
}

/**
 * Whether `wish` is just where the topic is: whoever was told of everything has the position of the last message.
 * @param {Topic} topic
 * @param {Wish} wish
 */
function isWhere(topic, wish) {
  return wish.position !== null && wish.position === topic.position && topic.isExact;
}

/**
 * Whom messages of the topic are for; null means everyone.
 * @param {Topic} topic
 */
function served({ wishes, late, newcomer }) {
  const waiting = newcomer ? [...late, newcomer] : late;
  return waiting.length ? [...wishes.keys()].filter((key) => !waiting.some((wish) => wish.key === key)) : null;
}
