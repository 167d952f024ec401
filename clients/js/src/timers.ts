/**
 * What is due when, by name, on a clock that is told to it. Pure: whoever has it calls `pass()` when `next()` has come.
 */

import { PUT_OFF_MS, TURN_MS, isPutOff } from "./verdicts.ts";

const ASLEEP_MS = 45_000; // callers come each 30 s

/** All that a session waits for. */
export type Due = "retry" | "dial" | "quiet" | "pong" | "closing" | "token" | "refresh" | "home" | "again" | "requests" | "say";

/** Those after which somebody is taken for dead: not before what he said has been read. */
const VERDICTS: Due[] = ["dial", "pong", "token", "requests"];

export class Timers {
  #due = new Map<Due, number>(); // what → when
  #handlers: Partial<Record<Due, (now: number) => void>> = {};
  #putOff = new Map<Due, number>(); // verdict → how often it was, once it is near
  #isHidden = false;
  #now = 0;

  /** What to do when something is due. */
  when(handlers: Partial<Record<Due, (now: number) => void>>): void {
    Object.assign(this.#handlers, handlers);
  }

  /** Whether the page is hidden: then timers are always late. What was late before doesn't count for that. */
  hide(isHidden: boolean): void {
    this.#isHidden = isHidden;
    for (const what of this.#putOff.keys()) this.#putOff.set(what, 0);
  }

  set(what: Due, at: number): void {
    this.#due.set(what, VERDICTS.includes(what) ? at - TURN_MS : at);
    this.#putOff.delete(what);
  }

  /** At `at`, unless it is due sooner. */
  soon(what: Due, at: number): void {
    this.set(what, Math.min(at, this.#due.get(what) ?? Infinity));
  }

  has(what: Due): boolean {
    return this.#due.has(what);
  }

  delete(what: Due): void {
    this.#due.delete(what);
    this.#putOff.delete(what);
  }

  clear(): void {
    this.#due.clear();
    this.#putOff.clear();
  }

  /** When the first thing is due; null while there is nothing to wait for. */
  next(): number | null {
    return this.#due.size ? Math.min(...this.#due.values()) : null;
  }

  /** It is `now`, nothing is done yet: by how much the clock was set back, and whether the device has slept since the last time. */
  tick(now: number): { setBack: number; hasSlept: boolean } {
    const passed = this.#now ? now - this.#now : 0;
    this.#now = now;
    const setBack = Math.min(0, passed);
    // What was due in a second is so still.
    for (const [what, at] of this.#due) this.#due.set(what, at + setBack);
    return { setBack, hasSlept: passed > ASLEEP_MS };
  }

  /** Do what is due, but for verdicts that must wait. */
  run(now: number): void {
    for (const [what, at] of [...this.#due]) {
      if (at > now || this.#due.get(what) !== at || this.#mustWait(what, now)) continue;
      this.delete(what);
      this.#handlers[what]?.(now);
    }
  }

  #mustWait(what: Due, now: number): boolean {
    if (!VERDICTS.includes(what)) return false;
    const at = this.#due.get(what)!;
    const times = this.#putOff.get(what);
    const isLate = isPutOff(now - at, times ?? 0, this.#isHidden);
    if (isLate) this.#due.set(what, now + PUT_OFF_MS);
    else if (times === undefined) this.#due.set(what, now + TURN_MS);
    else return false;
    this.#putOff.set(what, (times ?? 0) + Number(isLate));
    return true;
  }
}
