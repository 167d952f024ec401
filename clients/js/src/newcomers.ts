/**
 * The subscriptions that come to a topic which others follow already, and aren't just where it is. Pure.
 *
 * A newcomer gets nothing until the topic has been subscribed as it wishes, for it alone: one after the other.
 */

import type { Wish } from "./notes.ts";

export class Newcomers {
  #late: Wish[] = [];
  #current: Wish | null = null; // the one whose wish is being served
  #isAwaited = false; // whether the topic is being made ready for the next one

  add(wish: Wish): void {
    this.#late.push(wish);
  }

  leave(key: string): void {
    this.#late = this.#late.filter((wish) => wish.key !== key);
  }

  /** The keys of those that don't yet get what the others get. */
  get keys(): string[] {
    return (this.#current ? [...this.#late, this.#current] : this.#late).map(({ key }) => key);
  }

  /** Whether the topic must be made ready for one. Says so once, until `next()` is called. */
  await(): boolean {
    if (this.#late.length === 0 || this.#isAwaited) return false;
    this.#isAwaited = true;
    return true;
  }

  /** The wish to serve now, if the topic is ready. */
  next(isReady: boolean): Wish | null {
    this.#isAwaited = false;
    const next = (isReady && this.#late.shift()) || null;
    if (next) this.#current = next;
    return next;
  }

  /** The present one is served; should this be all it gets, it comes back from `position`. */
  servedFrom(position: string | null): void {
    if (this.#current) this.#current = { ...this.#current, position, rewind: null };
  }

  /** The present one gets what all get. */
  joined(): void {
    this.#current = null;
  }

  /** The present one begins again, if it is still among these `wishes`. */
  restart(wishes: Map<string, Wish>): void {
    if (this.#current && wishes.has(this.#current.key)) this.#late.unshift(this.#current);
    this.#current = null;
    this.#isAwaited = false;
  }
}
