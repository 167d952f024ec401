/**
 * Due times by name, on a clock that callers pass in. Pure: the owner calls `pass()` at the time of `next()`.
 */

import { PUT_OFF_MS, TURN_MS, isPutOff } from "./verdicts.ts";

const ASLEEP_MS = 45_000; // callers call at least every 30 s

/** All events that a session waits for. */
export type Due = "retry" | "dial" | "quiet" | "pong" | "closing" | "token" | "refresh" | "home" | "again" | "requests" | "say";

/** Verdicts, after which a peer is taken for dead: not before its received data has been read. */
const VERDICTS: Due[] = ["dial", "pong", "token", "requests"];

export class Timers {
  #due = new Map<Due, number>(); // what → when
  #handlers: Partial<Record<Due, (now: number) => void>> = {};
  #putOff = new Map<Due, number>(); // verdict → how often it was, once it is near
  #isHidden = false;
  #now = 0;

  /** The actions of due events. */
  when(handlers: Partial<Record<Due, (now: number) => void>>): void {
    Object.assign(this.#handlers, handlers);
  }

  /** True if the page is hidden: then timers are always late. Earlier lateness doesn't count for that. */
  hide(isHidden: boolean): void {
    this.#isHidden = isHidden;
    for (const what of this.#putOff.keys()) this.#putOff.set(what, 0);
  }

  set(what: Due, at: number): void {
    this.#due.set(what, VERDICTS.includes(what) ? at - TURN_MS : at);
    this.#putOff.delete(what);
  }

  /** Set it for `at`, unless it is due sooner. */
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

  /** The time of the first due event; null while nothing waits. */
  next(): number | null {
    return this.#due.size ? Math.min(...this.#due.values()) : null;
  }

  /** Take the time `now`, before anything is done: returns by how much the clock was set back, and whether the device has slept since the last call. */
  tick(now: number): { setBack: number; hasSlept: boolean } {
    const passed = this.#now ? now - this.#now : 0;
    this.#now = now;
    const setBack = Math.min(0, passed);
    // An event due in a second stays so.
    for (const [what, at] of this.#due) this.#due.set(what, at + setBack);
    return { setBack, hasSlept: passed > ASLEEP_MS };
  }

  /** Run due events, except verdicts that must wait. */
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
