/**
 * What pages have asked for and await an answer to: history, and marks on the messages of a mailbox. Pure.
 *
 * All of it may be said twice, and is, until it is answered: on the next connection, and when a gateway in a hurry
 * doesn't say what it left unread.
 *
 * The decision to question: `marked` isn't taken for the answer to a mark. It says that the mark is on its way, where it
 * may be lost without a word; the push that tells all of the user's devices is the answer, wherever its topic is
 * followed. Repeats of a push are swallowed on the way, so what was pushed before is remembered here.
 */

import { identityOf } from "./seen.js";

/** @import { Mark, Note, Push, Verb } from "./types" */

/**
 * @typedef {object} Request
 * @property {Verb} verb
 * @property {string | null} ref null until it has been said on this connection
 * @property {number} due when it is to be said again
 * @property {number} marked how often the gateway has taken it, and no push came
 */

/**
 * The `type` of what is pushed when a message was marked → the verb that does so.
 * @type {Record<string, Mark["mark"]>}
 */
export const MARKS = { acked: "ack", read: "read", dismissed: "dismiss" };

const MOST = 256;
const MOST_MARKS = 1024;
const AT_ONCE = { verbs: 10, ms: 1000 }; // what a gateway lets in, after the first rush
const PUSH_MS = 2000; // a push comes within a second
const SAYINGS = 3;

const TOO_MANY = { type: "error", code: 111, reason: "too many requests wait for a connection", temporary: true };
const NO_PUSH = { type: "error", code: 100, reason: "the gateway took the mark, but no push says that it is there", temporary: true };

export class Requests {
  /** @type {Map<string, Request>} */
  #requests = new Map(); // by key
  /** @type {Set<string>} */
  #marks = new Set(); // that are known to be there, oldest first
  #refs = 0;

  /**
   * `send` takes verbs for the gateway, `tell` notes for the tabs; `isServed` says whether pushes of a topic come.
   * @param {{send: (verb: Verb) => void, tell: (note: Note) => void, isServed: (topic: string) => boolean}} options
   */
  constructor({ send, tell, isServed }) {
    this.send = send;
    this.tell = tell;
    this.isServed = isServed;
  }

  /**
   * A page asks `verb` and awaits the answer under `key`; `ready` says whether verbs can be sent.
   * @param {string} key
   * @param {Verb} verb
   * @param {boolean} ready
   */
  ask(key, verb, ready) {
    if (this.#requests.has(key)) return;
    if (this.#requests.size >= MOST) return void this.tell({ t: "answer", key, push: TOO_MANY });
    const request = { verb, ref: null, due: Infinity, marked: 0 };
    this.#requests.set(key, request);
    if (ready) this.#say(request);
  }

  /** Verbs can be sent: say what hasn't been said. */
  connected() {
    for (const request of this.#requests.values()) if (request.ref === null) this.#say(request);
  }

  disconnected() {
    for (const request of this.#requests.values()) Object.assign(request, { ref: null, due: Infinity, marked: 0 });
  }

  /**
   * Take what may be the answer to one of these, and say whether it was.
   * @param {Push} push
   * @param {number} now
   */
  reply(push, now) {
    if (push.ref === undefined || push.ref === null) return false;
    for (const [key, request] of this.#requests) {
      if (request.ref !== push.ref) continue;
      if (push.type === "marked" && this.isServed(request.verb.topic ?? "") && !this.#marks.has(markOf(request.verb))) {
        request.due = now + PUSH_MS * 2 ** request.marked;
        request.marked += 1;
      } else this.#answer(key, push);
      return true;
    }
    return false;
  }

  /**
   * Something was pushed: if it is a mark, it is there, whoever awaits it.
   * @param {Push} push
   */
  pushed(push) {
    const action = MARKS[push.type];
    if (typeof action !== "string") return;
    const mark = markOf({ ...push, action });
    this.#marks.add(mark);
    for (const oldest of this.#marks) {
      if (this.#marks.size <= MOST_MARKS) break;
      this.#marks.delete(oldest);
    }
    for (const [key, { verb }] of this.#requests) if (markOf(verb) === mark) this.#answer(key, push);
  }

  /**
   * The gateway left verbs unread, and doesn't say which: whatever has no answer is to be said again at `at`.
   * @param {number} at
   */
  unread(at) {
    for (const request of this.#requests.values()) if (request.ref !== null) request.due = Math.min(request.due, at);
  }

  /** When to call `wake()`; Infinity if there is nothing to wait for. */
  due() {
    return Math.min(Infinity, ...Array.from(this.#requests.values(), ({ due }) => due));
  }

  /**
   * Say again what is due, little by little; give up what no push ever came of.
   * @param {number} now
   */
  wake(now) {
    let left = AT_ONCE.verbs;
    for (const [key, request] of this.#requests) {
      if (request.due > now) continue;
      if (request.marked >= SAYINGS) this.#answer(key, NO_PUSH);
      else if (left > 0) this.#say(request);
      else request.due = now + AT_ONCE.ms;
      left -= 1;
    }
  }

  /**
   * The clock was set: what was due in a second is so still.
   * @param {number} ms
   */
  shift(ms) {
    for (const request of this.#requests.values()) request.due += ms;
  }

  /** @param {Request} request */
  #say(request) {
    if (request.ref === null) {
      this.#refs += 1;
      request.ref = `r${this.#refs}`;
    }
    request.due = Infinity;
    this.send({ ...request.verb, ref: request.ref });
  }

  /**
   * @param {string} key
   * @param {Push} push
   */
  #answer(key, push) {
    this.#requests.delete(key);
    this.tell({ t: "answer", key, push });
  }
}

/**
 * The same for all copies of a message.
 * @param {{action: string, topic?: string, id?: string}} mark
 */
function markOf({ action, topic, id = "" }) {
  return `${action} ${identityOf(id)} ${topic}`;
}
