/**
 * Requests of pages that await an answer: history, and marks on the messages of a mailbox. Pure.
 *
 * All of them may be repeated, and are, until they are answered: on the next connection, and when a gateway in a
 * hurry doesn't name the verbs that it left unread.
 *
 * The decision to question: `marked` isn't taken for the answer to a mark. It means that the mark is on its way, where
 * it may be lost silently. The answer is the push to all of the user's devices, wherever its topic is followed. Repeats
 * of a push are swallowed on the way, so earlier pushes are remembered here.
 */

import type { Mark } from "./api.ts";
import type { Output } from "./notes.ts";
import { identityOf } from "./seen.ts";
import type { Timers } from "./timers.ts";
import type { GatewayPush, Verb } from "./wire.ts";

interface Request {
  verb: Verb;
  /** Null until it has been sent on this connection. */
  ref: string | null;
  /** Time of its repeat. */
  due: number;
  /** The number of times that the gateway accepted the verb, and no push arrived. */
  marked: number;
}

/** The `type` of the push about a mark → its verb. */
export const MARKS: Record<string, Mark["mark"]> = { acked: "ack", read: "read", dismissed: "dismiss" };

const MOST = 256;
const MOST_MARKS = 1024;
const PUSH_MS = 2000; // a push arrives within a second
const MOST_SENDS = 3;

const TOO_MANY = { type: "error", code: 111, reason: "too many requests wait for a connection", temporary: true };
const NO_PUSH = { type: "error", code: 100, reason: "the gateway took the mark, but no push says that it is there", temporary: true };

export class Requests {
  #requests = new Map<string, Request>(); // by key
  #marks = new Set<string>(); // of marks that are known to be written, oldest first
  #refs = 0;
  #out: Output;
  #timers: Timers;
  #isServed;

  /** `isServed`: pushes of a topic arrive. */
  constructor(out: Output, timers: Timers, isServed: (topic: string) => boolean) {
    this.#out = out;
    this.#timers = timers;
    this.#isServed = isServed;
    timers.when({ requests: (now) => this.#sayDue(now) });
  }

  /** A page asks `verb` and awaits the answer under `key`; `ready` says whether verbs can be sent. */
  add(key: string, verb: Verb, ready: boolean): void {
    if (this.#requests.has(key)) return;
    if (this.#requests.size >= MOST) return void this.#out.notify({ t: "answer", key, push: TOO_MANY });
    const request: Request = { verb, ref: null, due: Infinity, marked: 0 };
    this.#requests.set(key, request);
    if (ready) this.#send(request);
  }

  /** Verbs can be sent: send those that wait. */
  connected(): void {
    for (const request of this.#requests.values()) if (request.ref === null) this.#send(request);
  }

  disconnected(): void {
    for (const request of this.#requests.values()) Object.assign(request, { ref: null, due: Infinity, marked: 0 });
  }

  /** Take a possible answer to one of these; returns true if it was. */
  reply(push: GatewayPush, now: number): boolean {
    if (push.ref === undefined || push.ref === null) return false;
    for (const [key, request] of this.#requests) {
      if (request.ref !== push.ref) continue;
      if (push.type === "marked" && this.#isServed(request.verb.topic ?? "") && !this.#marks.has(markOf(request.verb))) {
        request.due = now + PUSH_MS * 2 ** request.marked;
        request.marked += 1;
        this.#await();
      } else this.#answer(key, push);
      return true;
    }
    return false;
  }

  /** A push arrived: if it is a mark, the mark is written, whoever awaits it. */
  pushed(push: GatewayPush): void {
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

  /** The gateway left verbs unread, and doesn't name them: all without an answer are repeated at `at`. */
  unread(at: number): void {
    for (const request of this.#requests.values()) if (request.ref !== null) request.due = Math.min(request.due, at);
    this.#await();
  }

  #await(): void {
    const due = Math.min(Infinity, ...Array.from(this.#requests.values(), (request) => request.due));
    if (due < Infinity) this.#timers.soon("requests", due);
  }

  /** Repeat due verbs; give up those that no push ever answered. */
  #sayDue(now: number): void {
    for (const [key, request] of this.#requests) {
      if (request.due > now) continue;
      if (request.marked >= MOST_SENDS) this.#answer(key, NO_PUSH);
      else this.#send(request);
    }
    this.#await();
  }

  /** The clock was set by `ms`: an event due in a second stays so. */
  shift(ms: number): void {
    for (const request of this.#requests.values()) request.due += ms;
  }

  #send(request: Request): void {
    if (request.ref === null) {
      this.#refs += 1;
      request.ref = `r${this.#refs}`;
    }
    request.due = Infinity;
    this.#out.send({ ...request.verb, ref: request.ref });
  }

  #answer(key: string, push: GatewayPush): void {
    this.#requests.delete(key);
    this.#out.notify({ t: "answer", key, push });
  }
}

/** The same for all copies of a message. */
function markOf({ action, topic, id = "" }: Verb): string {
  return `${action} ${identityOf(id)} ${topic}`;
}
