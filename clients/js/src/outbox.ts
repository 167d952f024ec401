/**
 * The queue of verbs for the gateway, in order, at its pace; outdated verbs are removed. Pure.
 *
 * Nothing is sent before the end of the present turn of the event loop (`takeDue()`): a page which follows a topic and
 * leaves it at once sends nothing at all. A gateway is asked for its limits before verbs wait because of them. Not
 * every page asks, since most never come near.
 */

import type { Verb } from "./wire.ts";

/** The limits of one connection: followed topics, verbs at once, and verbs a second after that. */
export interface Limits {
  topics: number;
  verbs: number;
  verbsPerSecond: number;
}

/** Of a gateway that doesn't send its own: docs/protocol.md, errors 106 and 111. */
export const LIMITS: Limits = { topics: 128, verbs: 256, verbsPerSecond: 10 };

/** The used share of the limit on verbs: signs of life are asked for beside them. */
const SHARE = 0.8;

export class VerbOutbox {
  /** The gateway's limits. */
  limits = LIMITS;
  #isAsked = false; // true if the gateway has sent its limits on this connection, or will
  #waiting: Verb[] = [];
  #followed = new Set<string>(); // topics that the gateway may have subscribed
  #allowance = 0; // verbs that may be sent at `#countedAt`
  #countedAt = 0;

  /** A connection is open: nothing has been sent on it. */
  connected(now: number): void {
    this.limits = LIMITS;
    this.#isAsked = false;
    this.#allowance = SHARE * LIMITS.verbs;
    this.#countedAt = now;
  }

  disconnected(): void {
    this.#waiting = [];
    this.#followed.clear();
  }

  /** Send `verb` in its turn; once, if it is repeated while it waits. */
  queue(verb: Verb): void {
    if (!this.#waiting.some(({ ref }) => ref === verb.ref)) this.#waiting.push(verb);
  }

  /** Drop waiting verbs that subscribe to a topic or leave it: returns their refs. */
  withdraw(topic: string): string[] {
    const isOfTopic = ({ action, topic: its }: Verb) => its === topic && (action === "subscribe" || action === "unsubscribe");
    const withdrawn = this.#waiting.filter(isOfTopic);
    this.#waiting = this.#waiting.filter((verb) => !isOfTopic(verb));
    return withdrawn.map(({ ref }) => ref!);
  }

  /** True if the gateway may have subscribed us to a topic. */
  mayHave(topic: string): boolean {
    return this.#followed.has(topic);
  }

  /** The gateway hasn't: its answer to the last verb on the topic shows so. */
  hasLeft(topic: string): void {
    this.#followed.delete(topic);
  }

  /** The gateway reports that verbs arrive too fast. */
  tooFast(now: number): void {
    this.#allowance = 0;
    this.#countedAt = now;
  }

  /** The gateway sends its limits, as `{topics, verbs, verbs_per_second}`: valid fields count. */
  setLimits(limits: any): void {
    const { topics, verbs, verbs_per_second: verbsPerSecond } = limits ?? {};
    const own = { topics, verbs, verbsPerSecond };
    const sensible = Object.entries(own).filter(([, limit]) => Number.isFinite(limit) && limit >= 1);
    this.limits = { ...this.limits, ...Object.fromEntries(sensible) };
    this.#isAsked = true;
  }

  /** The verbs that may be sent now. */
  takeDue(now: number): Verb[] {
    const { verbs, verbsPerSecond } = this.limits;
    const earned = (Math.max(0, now - this.#countedAt) / 1000) * SHARE * verbsPerSecond;
    // A gateway that takes one at a time is sent one at a time.
    this.#allowance = Math.min(Math.max(1, SHARE * verbs), this.#allowance + earned);
    this.#countedAt = now;
    const ready = this.#waiting.splice(0, Math.floor(this.#allowance));
    this.#allowance -= ready.length;
    for (const { action, topic } of ready) if (action === "subscribe") this.#followed.add(topic!);
    if (this.#isAsked || (!this.#waiting.length && this.#followed.size <= this.limits.topics / 2)) return ready;
    this.#isAsked = true;
    return [...ready, { action: "ping", limits: true }];
  }

  /** Wait in ms until there is more to take; null if nothing waits. */
  get wait(): number | null {
    if (!this.#waiting.length) return null;
    return Math.ceil((1000 * Math.max(0, 1 - this.#allowance)) / (SHARE * this.limits.verbsPerSecond));
  }
}
