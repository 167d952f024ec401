/**
 * One connection for all tabs of an origin: the tab that holds a Web Lock has it, the others speak with it over a
 * BroadcastChannel. Without these, or when told so, each tab has its own.
 *
 * Locks outlive no tab, so a crash hands the connection on as surely as a goodbye: the next tab in the queue gets the
 * lock, connects, and all tabs tell it where they are. Each tab also holds a lock of its own name, for the leader
 * to notice that it is gone. A leader that the browser has frozen holds its lock but says nothing: a tab that
 * is seen and gets no answer steals it.
 */

/**
 * @import { Connection } from "./connection.js"
 * @import { Desk } from "./desk.js"
 * @import { Ask, Lead, Note } from "./types"
 */

const LOOK_MS = 5000;
const ANSWER_MS = 2000;

export class Tabs {
  /** @type {Connection | null} */
  #connection = null;
  /** @type {BroadcastChannel | null} */
  #channel = null;
  /** @type {(() => void) | null} */
  #release = null; // ends our lead
  #isQueued = false; // whether we wait for the lead
  #leaving = new AbortController(); // of our wishes for locks
  /** @type {Set<string>} */
  #others = new Set(); // tabs that we, leading, have heard of
  #looking = 0;
  #answered = true;

  /**
   * `desk` is this tab's; `open(tell)` makes a connection; `name` is that of the lock and the channel.
   * @param {{name: string, desk: Desk, open: (tell: (note: Note) => void) => Connection, share: boolean}} options
   */
  constructor({ name, desk, open, share }) {
    this.name = name;
    this.desk = desk;
    this.open = open;
    this.isShared = share && "locks" in navigator && "BroadcastChannel" in globalThis;
  }

  /** @returns {"alone" | "leader" | "follower"} */
  get role() {
    if (!this.isShared) return "alone";
    return this.#connection ? "leader" : "follower";
  }

  /**
   * A note of our desk for the connection, wherever that is. What nobody hears now is said again in `hello`.
   * @param {Ask} note
   */
  say(note) {
    if (this.#connection) this.#connection.note(note);
    else this.#post("leader", note);
  }

  /** Begin, or begin again. */
  join() {
    if (!this.isShared) {
      this.#lead();
      return;
    }
    this.#leaving = new AbortController();
    const { signal } = this.#leaving;
    const own = this.#lock(`${this.name} ${this.desk.id}`, { signal }, () => {
      this.#arrive();
      return this.#untilLeft(signal);
    });
    // Sandboxed frames have locks that can't be had.
    own.catch(() => {
      this.isShared = false;
      this.#lead();
    });
  }

  /** Only now that we hold the lock of our own name may the leader hear of us: it asks for it to see whether we live. */
  #arrive() {
    this.#channel = new BroadcastChannel(this.name);
    this.#channel.onmessage = ({ data }) => this.#heard(data);
    this.#queue();
    this.desk.hello();
  }

  /** @param {AbortSignal} signal */
  #untilLeft(signal) {
    return new Promise((resolve) => signal.addEventListener("abort", resolve));
  }

  /** Give everything up; `join()` begins anew. */
  leave() {
    clearInterval(this.#looking);
    this.say({ t: "bye", desk: this.desk.id });
    this.#resign();
    this.#leaving.abort();
    this.#channel?.close();
    this.#channel = null;
  }

  /**
   * The page is seen or hidden.
   * @param {boolean} hidden
   */
  hide(hidden) {
    this.#connection?.hide(hidden);
    clearInterval(this.#looking);
    if (hidden || !this.isShared) return;
    this.#looking = setInterval(() => this.#look(), LOOK_MS);
    this.#look();
  }

  /** The network is back, or the device awake. */
  rouse() {
    if (this.#connection) this.#connection.rouse();
    else this.#look();
  }

  /* ---- Leading ---- */

  async #queue() {
    if (this.#isQueued) return;
    this.#isQueued = true;
    await this.#lock(this.name, { signal: this.#leaving.signal }, () => {
      this.#isQueued = false;
      return this.#leadUntilReleased();
    });
    this.#isQueued = false;
    this.#deposed();
  }

  async #steal() {
    await this.#lock(this.name, { steal: true }, () => this.#leadUntilReleased());
    this.#deposed();
  }

  /**
   * Resolves when the lock is ours no more: released, stolen, or not waited for any longer.
   * @param {string} name
   * @param {LockOptions} options
   * @param {() => unknown} whenHeld
   */
  async #lock(name, options, whenHeld) {
    try {
      await navigator.locks.request(name, options, whenHeld);
    } catch (error) {
      if (/** @type {Error} */ (error).name !== "AbortError") throw error;
    }
  }

  #leadUntilReleased() {
    if (this.#channel === null || this.#connection) return undefined;
    return /** @type {Promise<void>} */ (new Promise((resolve) => {
      this.#release = resolve;
      this.#lead();
      this.#post("tabs", { t: "lead" });
    }));
  }

  #lead() {
    this.#answered = true;
    this.#connection = this.open((note) => this.#tell(note));
    this.#connection.hide(document.hidden);
    this.desk.hello();
  }

  /** Our lock is gone, though we haven't left: another tab took us for dead. */
  #deposed() {
    if (this.#channel === null || !this.#connection) return;
    this.#resign();
    this.#queue();
    this.desk.hello();
  }

  #resign() {
    this.#connection?.close();
    this.#connection = null;
    this.#others.clear();
    this.#release?.();
    this.#release = null;
  }

  /**
   * A note of our connection, for all. Not at once for our own page, which may answer by another note.
   * @param {Note} note
   */
  #tell(note) {
    queueMicrotask(() => this.desk.note(note));
    if (this.#others.size) this.#post("tabs", note);
  }

  /**
   * @param {"leader" | "tabs"} to
   * @param {Ask | Note | Lead} note
   */
  #post(to, note) {
    this.#channel?.postMessage({ to, note, from: this.desk.id });
  }

  /** @param {{to: string, note: any, from: string}} message */
  #heard({ to, note, from }) {
    if (to === "leader") {
      if (this.#connection) this.#serve(note, from);
    } else if (!this.#connection) {
      this.#answered = true;
      if (note.t === "lead") this.desk.hello();
      else this.desk.note(note);
    }
  }

  /**
   * @param {Ask} note
   * @param {string} from
   */
  #serve(note, from) {
    if (note.t === "look") this.#post("tabs", { t: "here" });
    const connection = /** @type {Connection} */ (this.#connection);
    if (!this.#others.has(from) && note.t !== "bye") {
      this.#others.add(from);
      // Granted when that tab is gone, however it went.
      this.#lock(`${this.name} ${from}`, { signal: this.#leaving.signal }, () => {
        this.#others.delete(from);
        connection.note({ t: "bye", desk: from });
      });
    }
    connection.note(note);
  }

  /* ---- Following ---- */

  #look() {
    if (this.#connection || !this.#channel || !this.#answered) return;
    this.#answered = false;
    this.#post("leader", { t: "look" });
    setTimeout(() => {
      if (!this.#answered && this.#channel && !document.hidden) this.#steal();
    }, ANSWER_MS);
  }
}
