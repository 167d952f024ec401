/** Checks that the gateway still answers: one that is silent for too long is asked for a sign of life, and given up without one. Pure. */

import type { Timers } from "./timers.ts";

/** ms of silence before a gateway is asked, in visible pages and in others. */
export interface Heartbeat {
  visible: number;
  hidden: number;
}

/**
 * Silence of a connection, in ms, before it is asked for a sign of life. Hidden pages can wait: longer than the 25 s
 * between a gateway's heartbeats, which can be seen over SockJS, so that no question is needed. A visible page is to
 * have news from another region within 8 s: silence, `SLACK.least` and a pause of up to 0.5 s take 6 of them.
 */
export const HEARTBEAT: Heartbeat = { visible: 3000, hidden: 30_000 };
const SLACK = { least: 2500, most: 10_000 };
const LOOKED_MS = 15_000;

interface LivenessOptions {
  heartbeat: Heartbeat;
  timers: Timers;
  /** Asks the gateway for a sign of life. */
  ping: () => void;
  /** There was no sign. */
  onDead: (now: number) => void;
}

export class Liveness {
  #options: LivenessOptions;
  #isHidden = false;
  #lookedAt = -Infinity; // when a visible tab last checked its connection
  #heardAt = 0;
  #pingedAt = 0; // 0 while no pong is awaited
  #roundTrip = 0; // 0 until one was measured
  #answerMs = 0; // duration of a request to this region

  constructor(options: LivenessOptions) {
    this.#options = options;
    options.timers.when({ quiet: (now) => this.ping(now), pong: options.onDead });
  }

  /** A connection is open, to a region that answers requests within `ms`. */
  opened(ms: number, now: number): void {
    this.#answerMs = ms;
    this.heard(now);
  }

  disconnected(): void {
    this.#pingedAt = 0;
  }

  /** Any data has arrived. */
  heard(now: number): void {
    if (this.#pingedAt) this.#answered(now - this.#pingedAt);
    this.#pingedAt = 0;
    this.#heardAt = now;
    this.#options.timers.delete("pong");
    this.#options.timers.set("quiet", now + this.#interval(now));
  }

  /** If the page was blocked meanwhile, most of `ms` is its own. */
  #answered(ms: number): void {
    const roundTrip = Math.min(ms, SLACK.least);
    this.#roundTrip = this.#roundTrip ? (this.#roundTrip + roundTrip) / 2 : roundTrip;
  }

  ping(now: number): void {
    this.#pingedAt = now;
    this.#options.ping();
    // Until the first answer, endpoints.json gives the duration of a request: over SockJS a ping may be one.
    const slack = this.#interval(now) === this.#options.heartbeat.hidden ? SLACK.most : 4 * (this.#roundTrip || this.#answerMs);
    this.#options.timers.delete("quiet");
    this.#options.timers.set("pong", now + Math.min(SLACK.most, Math.max(SLACK.least, slack)));
  }

  #interval(now: number): number {
    const isSeen = !this.#isHidden || now - this.#lookedAt < LOOKED_MS;
    const { visible, hidden } = this.#options.heartbeat;
    return isSeen ? visible : hidden;
  }

  hide(isHidden: boolean): void {
    this.#isHidden = isHidden;
  }

  /** Another tab, which is visible, wants to check its connection; it can, as its timers aren't slowed down. */
  looked(now: number): void {
    this.#lookedAt = now;
    if (this.#options.timers.has("quiet")) this.#options.timers.soon("quiet", this.#heardAt + this.#interval(now));
  }

  /** The clock was set by `ms`. */
  shift(ms: number): void {
    this.#heardAt += ms;
    this.#lookedAt += ms;
    if (this.#pingedAt) this.#pingedAt += ms;
  }
}
