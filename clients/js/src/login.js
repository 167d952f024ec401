/**
 * Who the reader of a connection is: the token, its renewal, and who waits to hear what became of it. Pure.
 *
 * A token that is refused for good isn't said again, on later connections neither. One that is refused for the moment
 * stands, as does one that a gateway in a hurry may not have read: `again()` says it again, and so does the next
 * connection. Pages are told of a refusal each time; that it worked in the end is what `login` events say.
 */

/** @import { Note, Push, Verb } from "./types" */

export class Login {
  #wanted = false;
  /** @type {unknown} */
  #token = null; // the last one we were given
  /** @type {unknown} */
  #accepted = null; // the last one that was
  /** @type {unknown} */
  #refused = null;
  /** @type {Push | null} */
  #error = null; // why, to be told if no tab has a better one
  /** @type {string[]} */
  #keys = []; // of those who await an answer
  /** @type {string | null} */
  #ref = null; // of the last verb
  #isOpen = false; // whether that one has no answer yet that settles it
  #isAsking = false; // whether tabs have been asked for a token
  #refs = 0;
  /**
   * Who is logged in.
   * @type {{user: string, expires_at: number | null} | null}
   */
  user = null;

  /**
   * `send` takes verbs for the gateway, `tell` notes for the tabs.
   * @param {{send: (verb: Verb) => void, tell: (note: Note) => void}} options
   */
  constructor({ send, tell }) {
    this.send = send;
    this.tell = tell;
  }

  /** A tab has a token to offer. Returns whether that is news. */
  want() {
    const isNews = !this.#wanted;
    this.#wanted = true;
    return isNews;
  }

  /** Whether somebody wants to be logged in, but the token has to be asked for. */
  get lacksToken() {
    return this.#wanted && this.#token === null;
  }

  /** Say who we are, if anybody wants to be somebody. */
  say() {
    if (!this.#wanted) return;
    this.#refs += 1;
    this.#ref = `l${this.#refs}`;
    this.#isOpen = true;
    this.#send();
  }

  /** Say it again, if it isn't settled. Should both be read, it is the same login, and has the same answer. */
  again() {
    if (this.#isOpen) this.#send();
  }

  #send() {
    this.send({ action: this.user ? "refresh" : "login", token: this.#token, ref: /** @type {string} */ (this.#ref) });
  }

  askForToken() {
    this.#isAsking = true;
    this.tell({ t: "token?" });
  }

  /**
   * A tab brings the token it was asked for; null if it has none. Returns whether it is one to be said.
   * @param {unknown} token
   */
  bring(token) {
    if (!this.#isAsking) return false;
    this.#isAsking = false;
    const error = this.#error;
    this.#error = null;
    const isNew = typeof token === "string" && token !== this.#refused && token !== this.#token;
    if (isNew) this.#token = token;
    else if (error) this.tell({ t: "error", error: /** @type {any} */ (error) });
    return isNew;
  }

  /**
   * A page logs in itself, and awaits the answer under `key`.
   * @param {string} key
   * @param {unknown} token
   */
  ask(key, token) {
    this.#wanted = true;
    this.#token = token;
    this.#keys.push(key);
  }

  /**
   * What the gateway's `push` says of us, if anything: "in" or "refused".
   * @param {Push} push
   */
  reply(push) {
    if (push.type === "logged_in" || push.type === "refreshed") {
      this.#isAccepted(push);
      return "in";
    }
    if (push.type !== "error" || !push.ref || push.ref !== this.#ref) return null;
    if (this.#isOpen) this.#isRefused(push);
    return "refused";
  }

  /** @param {Push} push */
  #isAccepted({ user, expires_at: expiresAt }) {
    this.user = { user, expires_at: expiresAt ?? null };
    this.#isOpen = false;
    this.#accepted = this.#token;
    this.#refused = null;
    this.#answer({ type: "logged_in", ...this.user });
    this.tell({ t: "login", ...this.user });
  }

  /** @param {Push} push */
  #isRefused(push) {
    const isAwaited = this.#keys.length > 0;
    this.#answer(push);
    if (push.temporary) {
      if (!isAwaited) this.tell({ t: "error", error: /** @type {any} */ (push) });
      return;
    }
    this.#isOpen = false;
    this.#refused = this.#token;
    this.#token = this.user ? this.#accepted : null;
    if (isAwaited) return;
    // A tab may have a newer one; if none has, the page is told what is wrong with this one.
    this.#error = push;
    this.askForToken();
  }

  /** @param {Push} push */
  #answer(push) {
    for (const key of this.#keys.splice(0)) this.tell({ t: "answer", key, push });
  }

  /** The token has run out: the next one must be another. */
  expired() {
    this.#token = null;
  }

  disconnected() {
    this.#isAsking = false;
    this.#isOpen = false;
    this.#ref = null;
    this.user = null;
  }
}
