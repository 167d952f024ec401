/**
 * Who the reader of a connection is: the token, its renewal, and who waits to hear what became of it. Pure.
 *
 * A token that is refused for good isn't said again, on later connections neither. One that is refused for the moment
 * stands, as does one that a gateway in a hurry may not have read: `again()` says it again, and so does the next
 * connection. Pages are told of a refusal each time; that it worked in the end is what `login` events say.
 */

import type { Output } from "./notes.ts";
import { isError } from "./wire.ts";
import type { ErrorPush, Push } from "./wire.ts";

export class Login {
  /** Who is logged in. */
  user: { user: string; expires_at: number | null } | null = null;
  #wanted = false;
  #token: unknown = null; // the last one we were given
  #accepted: unknown = null; // the last one that was
  #refused: unknown = null;
  #error: ErrorPush | null = null; // why, to be told if no tab has a better one
  #keys: string[] = []; // of those who await an answer
  #ref = ""; // of the last verb
  #isOpen = false; // whether that one has no answer yet that settles it
  #isAsking = false; // whether tabs have been asked for a token
  #refs = 0;
  #out: Output;

  constructor(out: Output) {
    this.#out = out;
  }

  /** A tab has a token to offer. Returns whether that is news. */
  want(): boolean {
    const isNews = !this.#wanted;
    this.#wanted = true;
    return isNews;
  }

  /** Whether somebody wants to be logged in, but the token has to be asked for. */
  get lacksToken(): boolean {
    return this.#wanted && this.#token === null;
  }

  /** Say who we are, if anybody wants to be somebody. */
  say(): void {
    if (!this.#wanted) return;
    this.#refs += 1;
    this.#ref = `l${this.#refs}`;
    this.#isOpen = true;
    this.#send();
  }

  /** Say it again, if it isn't settled. Should both be read, it is the same login, and has the same answer. */
  again(): void {
    if (this.#isOpen) this.#send();
  }

  #send(): void {
    this.#out.send({ action: this.user ? "refresh" : "login", token: this.#token, ref: this.#ref });
  }

  askForToken(): void {
    this.#isAsking = true;
    this.#out.tell({ t: "token?" });
  }

  /** A tab brings the token it was asked for; null if it has none. Returns whether it is one to be said. */
  bring(token: unknown): boolean {
    if (!this.#isAsking) return false;
    this.#isAsking = false;
    const error = this.#error;
    this.#error = null;
    const isNew = typeof token === "string" && token !== this.#refused && token !== this.#token;
    if (isNew) this.#token = token;
    else if (error) this.#out.tell({ t: "error", error });
    return isNew;
  }

  /** A page logs in itself, and awaits the answer under `key`. */
  ask(key: string, token: unknown): void {
    this.#wanted = true;
    this.#token = token;
    this.#keys.push(key);
  }

  /** What the gateway's `push` says of us, if anything. */
  reply(push: Push): "in" | "refused" | null {
    if (push.type === "logged_in" || push.type === "refreshed") {
      this.#isAccepted(push);
      return "in";
    }
    if (!isError(push) || !push.ref || push.ref !== this.#ref) return null;
    if (this.#isOpen) this.#isRefused(push);
    return "refused";
  }

  #isAccepted({ user, expires_at: expiresAt }: Push): void {
    this.user = { user, expires_at: expiresAt ?? null };
    this.#isOpen = false;
    this.#accepted = this.#token;
    this.#refused = null;
    this.#answer({ type: "logged_in", ...this.user });
    this.#out.tell({ t: "login", ...this.user });
  }

  #isRefused(push: ErrorPush): void {
    const isAwaited = this.#keys.length > 0;
    this.#answer(push);
    if (push.temporary) {
      if (!isAwaited) this.#out.tell({ t: "error", error: push });
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

  #answer(push: Push): void {
    for (const key of this.#keys.splice(0)) this.#out.tell({ t: "answer", key, push });
  }

  /** The token has run out: the next one must be another. */
  expired(): void {
    this.#token = null;
  }

  disconnected(): void {
    this.#isAsking = false;
    this.#isOpen = false;
    this.#ref = "";
    this.user = null;
  }
}
