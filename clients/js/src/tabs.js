/**
 * One connection for all tabs of an origin: the tab that holds a Web Lock has it, the others speak with it over a
 * BroadcastChannel. Without these, or when told so, each tab has its own.
 *
 * Locks outlive no tab, so a crash hands the connection on as surely as a goodbye: the next tab in the queue gets the
 * lock, connects, and all tabs tell it where they are. Each tab also holds a lock of its own name, for the leader
 * to notice that it is gone. A leader that the browser has frozen holds its lock but says nothing: a tab that
 * is seen and gets no answer steals it.
 */

const LOOK_MS = 5000;
const ANSWER_MS = 2000;

export class Tabs {
  #connection = null;
  #channel = null;
  #release = null; // ends our lead
  #isQueued = false; // whether we wait for the lead
  #leaving = null; // AbortController of our wishes for locks
  #others = new Set(); // tabs that we, leading, have heard of
  #looking = null;
  #answered = true;

  /** `desk` is this tab's; `open(tell)` makes a connection; `name` is that of the lock and the channel. */
  constructor({ name, desk, open, share }) {
    Object.assign(this, { name, desk, open });
    this.isShared = share && "locks" in navigator && "BroadcastChannel" in globalThis;
  }

  /** "alone", "leader" or "follower". */
  get role() {
    if (!this.isShared) return "alone";
    return this.#connection ? "leader" : "follower";
  }

  /** A note of our desk for the connection, wherever that is. What nobody hears now is said again in `hello`. */
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

  #untilLeft(signal) {
    return new Promise((resolve) => signal.addEventListener("abort", resolve));
  }

  /** Give everything up; `join()` begins anew. */
  leave() {
    clearInterval(this.#looking);
    this.#looking = null;
    this.say({ t: "bye", desk: this.desk.id });
    this.#resign();
    this.#leaving?.abort();
    this.#channel?.close();
    this.#channel = null;
  }

  /** The page is seen or hidden. */
  hide(hidden) {
    this.#connection?.hide(hidden);
    clearInterval(this.#looking);
    this.#looking = null;
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

  /** Resolves when the lock is ours no more: released, stolen, or not waited for any longer. */
  async #lock(name, options, whenHeld) {
    try {
      await navigator.locks.request(name, options, whenHeld);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  #leadUntilReleased() {
    if (this.#channel === null || this.#connection) return undefined;
    return new Promise((resolve) => {
      this.#release = resolve;
      this.#lead();
      this.#post("tabs", { t: "lead" });
    });
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

  /** A note of our connection, for all. Not at once for our own page, which may answer by another note. */
  #tell(note) {
    queueMicrotask(() => this.desk.note(note));
    if (this.#others.size) this.#post("tabs", note);
  }

  #post(to, note) {
    this.#channel?.postMessage({ to, note, from: this.desk.id });
  }

  #heard({ to, note, from }) {
    if (to === "leader") {
      if (this.#connection) this.#serve(note, from);
    } else if (!this.#connection) {
      this.#answered = true;
      if (note.t === "lead") this.desk.hello();
      else this.desk.note(note);
    }
  }

  #serve(note, from) {
    if (note.t === "look") this.#post("tabs", { t: "here" });
    if (!this.#others.has(from) && note.t !== "bye") {
      this.#others.add(from);
      const connection = this.#connection;
      // Granted when that tab is gone, however it went.
      this.#lock(`${this.name} ${from}`, { signal: this.#leaving.signal }, () => {
        this.#others.delete(from);
        connection.note({ t: "bye", desk: from });
      });
    }
    this.#connection.note(note);
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
