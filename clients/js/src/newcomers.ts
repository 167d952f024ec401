/**
 * New subscriptions of a topic that others already follow, with another start than its present position. Pure.
 *
 * A newcomer gets nothing until the topic has been subscribed with its start, for it alone: one after the other.
 */

import type { Interest } from "./notes.ts";

export class Newcomers {
  #late: Interest[] = [];
  #current: Interest | null = null; // the interest that is being served
  #isAwaited = false; // true while the topic is being made ready for the next one

  add(interest: Interest): void {
    this.#late.push(interest);
  }

  leave(key: string): void {
    this.#late = this.#late.filter((interest) => interest.key !== key);
  }

  /** The keys of subscriptions that don't yet get the common messages. */
  get keys(): string[] {
    return (this.#current ? [...this.#late, this.#current] : this.#late).map(({ key }) => key);
  }

  /** Return true if the topic must be made ready for a newcomer; only once, until `next()` is called. */
  await(): boolean {
    if (this.#late.length === 0 || this.#isAwaited) return false;
    this.#isAwaited = true;
    return true;
  }

  /** The interest to serve now, if the topic is ready. */
  next(isReady: boolean): Interest | null {
    this.#isAwaited = false;
    const next = (isReady && this.#late.shift()) || null;
    if (next) this.#current = next;
    return next;
  }

  /** The present one is served; if it gets no more than this, it is served again from `position`. */
  servedFrom(position: string | null): void {
    if (this.#current) this.#current = { ...this.#current, position, rewind: null };
  }

  /** The present one gets the common messages. */
  joined(): void {
    this.#current = null;
  }

  /** The present one begins again, if it is still among these `interests`. */
  restart(interests: Map<string, Interest>): void {
    if (this.#current && interests.has(this.#current.key)) this.#late.unshift(this.#current);
    this.#current = null;
    this.#isAwaited = false;
  }
}
