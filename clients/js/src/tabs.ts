/**
 * One connection for all tabs of an origin: the tab that holds a Web Lock has it, the others use it over a
 * BroadcastChannel. Without these APIs, or if the page wants so, each tab has its own.
 *
 * Locks outlive no tab, so a crash hands the connection on as surely as a goodbye: the next tab in the queue gets the
 * lock, connects, and all tabs send it their state. Each tab also holds a lock of its own name, by which the leader
 * notices its end. A leader that the browser has frozen holds its lock but sends nothing: a visible tab without an
 * answer steals it.
 */

import type { State } from "./api.ts";
import type { SharedConnection } from "./connection.ts";
import { LeadLock, holdLock } from "./locks.ts";
import type { Lead, ToConnection, ToTabs } from "./notes.ts";
import type { Subscriber } from "./subscriber.ts";
import { judgeAfter } from "./verdicts.ts";

const LOOK_MS = 5000;
const ANSWER_MS = 2000;

interface TabsOptions {
  /** Name of the lock and the channel. */
  name: string;
  /** Name of this tab. */
  subscriber: Subscriber;
  /** Makes a connection that says `tell(note)`. */
  open: (notify: (note: ToTabs) => void) => SharedConnection;
  share: boolean;
}

export class Tabs {
  #options: TabsOptions;
  #isShared: boolean;
  #lock: LeadLock;
  #connection: SharedConnection | null = null;
  #channel: BroadcastChannel | null = null;
  #leaving = new AbortController(); // of our requests for locks
  #others = new Set<string>(); // tabs that this leader knows
  #looking = 0;
  #isAnswered = true;
  #callOff = () => {}; // the verdict on a leader that doesn't answer

  constructor(options: TabsOptions) {
    this.#options = options;
    this.#isShared = options.share && "locks" in navigator && "BroadcastChannel" in globalThis;
    this.#lock = new LeadLock({
      name: options.name,
      mayLead: () => this.#channel !== null && this.#connection === null,
      onWon: () => {
        this.#lead();
        this.#post("tabs", { t: "lead" });
      },
      onLost: () => this.#lostLead(),
    });
  }

  get role(): NonNullable<State["tab"]> {
    if (!this.#isShared) return "alone";
    return this.#connection ? "leader" : "follower";
  }

  /** A note of our subscriber for the connection, wherever that is. Notes without a receiver now are repeated in `hello`. */
  say(note: ToConnection): void {
    if (this.#connection) this.#connection.note(note);
    else this.#post("leader", note);
  }

  /** Begin, or begin again. */
  join(): void {
    if (!this.#isShared) return this.#lead();
    this.#leaving = new AbortController();
    const { signal } = this.#leaving;
    const own = holdLock(`${this.#options.name} ${this.#options.subscriber.id}`, { signal }, () => {
      this.#arrive();
      return new Promise((resolve) => signal.addEventListener("abort", resolve));
    });
    // Sandboxed frames can't get locks.
    own.catch(() => {
      if (signal.aborted) return;
      this.#isShared = false;
      this.#lead();
    });
    return undefined;
  }

  /** The leader may learn of this tab only now that it holds the lock of its own name: the leader asks for that lock to see whether the tab lives. */
  #arrive(): void {
    this.#channel = new BroadcastChannel(this.#options.name);
    this.#channel.onmessage = ({ data }) => this.#heard(data);
    this.#lock.queue(this.#leaving.signal);
    this.#options.subscriber.hello();
  }

  /** Give everything up; `join()` begins anew. */
  leave(): void {
    clearInterval(this.#looking);
    this.#callOff();
    this.#isAnswered = true;
    this.say({ t: "bye", tab: this.#options.subscriber.id });
    this.#resign();
    this.#leaving.abort();
    this.#channel?.close();
    this.#channel = null;
  }

  /** The page is visible or hidden. */
  hide(isHidden: boolean): void {
    this.#connection?.hide(isHidden);
    clearInterval(this.#looking);
    if (isHidden || !this.#isShared) return;
    this.#looking = setInterval(() => this.#checkLeader(), LOOK_MS);
    this.#checkLeader();
  }

  /** The network is back, or the device awake. */
  recheck(): void {
    if (this.#connection) this.#connection.recheck();
    else this.#checkLeader();
  }

  #post(to: "leader" | "tabs", note: ToConnection | ToTabs | Lead): void {
    this.#channel?.postMessage({ to, note, from: this.#options.subscriber.id });
  }

  #heard({ to, note, from }: { to: string; note: any; from: string }): void {
    if (to === "leader") {
      if (this.#connection) this.#serve(this.#connection, note, from);
    } else if (!this.#connection) {
      this.#isAnswered = true;
      if (note.t === "lead") this.#options.subscriber.hello();
      else this.#options.subscriber.note(note);
    }
  }

  #lead(): void {
    this.#isAnswered = true;
    this.#connection = this.#options.open((note) => this.#notify(note));
    this.#connection.hide(isHidden());
    this.#options.subscriber.hello();
  }

  /** React to the loss of the lock; if this tab hasn't left, another tab took it for dead. */
  #lostLead(): void {
    if (this.#channel === null || !this.#connection) return;
    this.#resign();
    this.#lock.queue(this.#leaving.signal);
    this.#options.subscriber.hello();
  }

  #resign(): void {
    this.#connection?.close();
    this.#connection = null;
    this.#others.clear();
    this.#lock.release();
  }

  /** A note of our connection, for all. Not at once for our own page, which may answer by another note. */
  #notify(note: ToTabs): void {
    queueMicrotask(() => this.#options.subscriber.note(note));
    if (this.#others.size) this.#post("tabs", note);
  }

  #serve(connection: SharedConnection, note: ToConnection, from: string): void {
    if (note.t === "look") this.#post("tabs", { t: "here" });
    if (!this.#others.has(from) && note.t !== "bye") {
      this.#others.add(from);
      // Granted when that tab is gone, for any reason.
      holdLock(`${this.#options.name} ${from}`, { signal: this.#leaving.signal }, () => {
        this.#others.delete(from);
        connection.note({ t: "bye", tab: from });
      });
    }
    connection.note(note);
  }

  #checkLeader(): void {
    if (this.#connection || !this.#channel || !this.#isAnswered) return;
    this.#isAnswered = false;
    this.#post("leader", { t: "look" });
    this.#callOff = judgeAfter(ANSWER_MS, () => {
      const isDead = !this.#isAnswered && !isHidden();
      this.#isAnswered = true;
      if (isDead) this.#lock.steal();
    });
  }
}

/** True if the page is hidden; a reader without a page never is. */
export function isHidden(): boolean {
  return globalThis.document?.hidden ?? false;
}
