/** Decides whether and when to reconnect: as the gateway asked, and never sooner than it allows. Pure. */

import { BROKEN, ReconnectBackoff, askedWait, waitAfterLoss } from "./closing.ts";
import type { Random } from "./regions.ts";
import type { GatewayPush } from "./wire.ts";

/** The end of an attempt or a connection. `floor` is the least wait in ms, if the region asked for one. */
export interface Loss {
  code?: number;
  reason?: string;
  floor?: number;
}

export class Retries {
  /** The `disconnect` push of this connection's gateway, if there was one. */
  notice: GatewayPush | null = null;
  #random: Random;
  #backoff = new ReconnectBackoff();
  #openedAt = 0; // 0 while no connection is open
  #notBefore = 0; // the earliest time for a new try that the gateway, or its region, allows

  constructor(random: Random) {
    this.#random = random;
  }

  opened(now: number): void {
    this.#openedAt = now;
  }

  disconnected(): void {
    this.#openedAt = 0;
    this.notice = null;
  }

  /** Age of the connection, in ms; 0 if it isn't open. */
  openFor(now: number): number {
    return this.#openedAt ? now - this.#openedAt : 0;
  }

  /** The consequence for the attempt or the connection: `wait` in ms; null means never. */
  after({ code = BROKEN, reason = "", floor = 0 }: Loss, now: number, hasSentToken: boolean) {
    const { notice } = this;
    const wait = waitAfterLoss({ code, notice, openFor: this.openFor(now), hasSentToken }, this.#backoff, this.#random());
    if (wait !== null) this.#notBefore = now + Math.max(askedWait(notice), floor);
    return {
      code: notice?.code ?? code,
      reason: notice?.reason || reason,
      wait: wait === null ? null : Math.max(wait, floor),
    };
  }

  /** The time of the next try if there is a reason not to wait any longer. */
  soonest(now: number): number {
    return Math.max(this.#notBefore, now + this.#random() * this.#backoff.base);
  }

  /** The clock was set by `ms`. */
  shift(ms: number): void {
    if (this.#openedAt) this.#openedAt += ms;
    this.#notBefore += ms;
  }
}
