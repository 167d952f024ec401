/**
 * Who the reader of a connection is: the token, its renewal, and who waits to hear what became of it. Pure.
 *
 * A token that is refused for good isn't said again, on later connections neither. One that is refused for the moment
 * stands, as does one that a gateway in a hurry may not have read: `again()` says it again, and so does the next
 * connection. Pages are told of a refusal each time; that it worked in the end is what `login` events say.
 *
 * Each question has a number, and an answer counts for its own alone: a token that a page's function makes late is not
 * said on a connection that has asked for a newer one, and of two logins each page hears what became of its own.
 */

import type { Output } from "./notes.ts";
import { isError } from "./wire.ts";
import type { Random } from "./regions.ts";
import type { ErrorPush, GatewayPush } from "./wire.ts";

const UNAUTHORIZED = 101;

export class LoginState {
  /** Who is logged in. */
  user: { user: string; expires_at: number | null } | null = null;
  #wanted = false;
  #knowsBetter = false; // somebody was logged in or out, or was refused
  #token: unknown = null; // the last one we were given
  #accepted: unknown = null; // the last one that was
  #refused: unknown = null;
  /** Tokens in a row that were refused for good, and nobody awaited the answer. */
  refusals = 0;
  #error: ErrorPush | null = null; // why, to be told if no tab has a better one
  #keys = new Map<string, string>(); // of those who await an answer → the ref of their verb; "" until it is said
  #sent = new Map<string, unknown>(); // ref → the token, on this connection
  #ref = ""; // of the last verb
  #isOpen = false; // whether that one has no answer yet that settles it
  #question: number; // the last one that tabs were asked; those of other connections end in other decimals
  #isAsking = false; // whether it is still open
  #refs = 0;
  #out: Output;

  constructor(out: Output, random: Random) {
    this.#out = out;
    this.#question = random();
  }

  /** A tab knows with which token the browser was logged in: it goes on so, unless this connection knows better. Returns whether that is news. */
  adopt(token: string): boolean {
    const isNews = !this.#wanted && !this.#knowsBetter;
    if (isNews) this.#token = token;
    this.#wanted ||= isNews;
    return isNews;
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
    this.#sent.set(this.#ref, this.#token);
    for (const [key, ref] of this.#keys) if (!ref) this.#keys.set(key, this.#ref);
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
    this.#question += 1;
    this.#out.notify({ t: "token?", question: this.#question });
  }

  /** Whether `question` is the one that tabs are being asked; tabs of an older version don't say. */
  asks(question = this.#question): boolean {
    return this.#isAsking && question === this.#question;
  }

  /** A tab brings the token it was asked for; null if it has none. Returns whether it is one to be said; if not, another tab may have one. */
  bring(token: unknown): boolean {
    const error = this.#error;
    this.#error = null;
    const isNew = typeof token === "string" && token !== this.#refused && token !== this.#token;
    this.#isAsking = !isNew;
    if (isNew) this.#token = token;
    else if (error) this.#out.notify({ t: "error", error });
    return isNew;
  }

  /** A page logs in itself, and awaits the answer under `key`. */
  ask(key: string, token: unknown): void {
    this.#wanted = true;
    this.#isAsking = false;
    this.#token = token;
    this.#keys.set(key, "");
  }

  /** What the gateway's `push` says of us, if anything. */
  reply(push: GatewayPush): "in" | "refused" | null {
    if (push.type === "logged_in" || push.type === "refreshed") {
      this.#isAccepted(push);
      return "in";
    }
    if (!isError(push) || !this.#sent.has(push.ref)) return null;
    if (push.ref !== this.#ref) this.#answer(push.ref, push);
    else if (this.#isOpen) this.#isRefused(push);
    return "refused";
  }

  /** Without a `ref` it comes of what the gateway found in a cookie, of which we know nothing. */
  #isAccepted({ ref, user, expires_at: expiresAt }: GatewayPush): void {
    this.user = { user, expires_at: expiresAt ?? null };
    this.#accepted = this.#sent.get(ref) ?? null;
    this.#refused = null;
    this.refusals = 0;
    this.#knowsBetter = true;
    if (ref === this.#ref) this.#isOpen = false;
    this.tellToken();
    this.#answer(ref, { type: "logged_in", ...this.user });
    this.#out.notify({ t: "login", ...this.user });
  }

  /** Tabs keep it for the next connection, which may be that of any of them. */
  tellToken(): void {
    if (this.user && typeof this.#accepted === "string") this.#out.notify({ t: "token", token: this.#accepted });
  }

  #isRefused(push: ErrorPush): void {
    const isAwaited = this.#keys.size > 0;
    this.#answer(this.#ref, push);
    if (push.temporary) {
      if (!isAwaited) this.#out.notify({ t: "error", error: push });
      return;
    }
    this.#isOpen = false;
    this.#knowsBetter = true;
    this.#refused = this.#token;
    this.#token = this.user ? this.#accepted : null;
    if (isAwaited) return;
    this.refusals += 1;
    // Its function makes them faster than they can be refused: it is asked again in a while.
    if (this.refusals > 1) return this.#out.notify({ t: "error", error: push });
    // A tab may have a newer one; if none has, the page is told what is wrong with this one.
    this.#error = push;
    this.askForToken();
  }

  /** Verbs are answered in order: what was said before the last one and has no answer yet was never read, and shares its. */
  #answer(ref: string, push: GatewayPush): void {
    const isLast = ref === this.#ref;
    for (const sent of this.#sent.keys()) if (isLast && sent !== ref) this.#sent.delete(sent);
    for (const [key, asked] of this.#keys) {
      if (!isLast && asked !== ref) continue;
      this.#keys.delete(key);
      this.#out.notify({ t: "answer", key, push });
    }
  }

  /** The token has run out: the next one must be another. */
  expired(reason: string, code: number): void {
    this.#tellOut(reason, code);
    this.#token = null;
  }

  /** Whether a token was said on this connection. */
  get hasSaid(): boolean {
    return this.#sent.size > 0;
  }

  /** Nobody is logged in any more, nor to be; who awaits a login hears why. */
  end(reason: string, code: number): void {
    this.#tellOut(reason, code);
    this.#answer(this.#ref, { type: "error", code: code && UNAUTHORIZED, reason });
    if (this.#token !== null) this.#refused = this.#token;
    this.#token = this.#accepted = null;
    this.#wanted = this.#isAsking = false;
    this.#knowsBetter = true;
  }

  #tellOut(reason: string, code: number): void {
    if (this.user) this.#out.notify({ t: "logout", user: this.user.user, reason, code });
  }

  /** Whether `token` is of another user than the one that is logged in: it can't be said on this connection. */
  isOthers(token: unknown): boolean {
    const user = userOf(token);
    return this.user !== null && user !== null && user !== this.user.user;
  }

  disconnected(): void {
    this.#isAsking = false;
    this.#isOpen = false;
    this.#ref = "";
    this.#sent.clear();
    for (const key of this.#keys.keys()) this.#keys.set(key, "");
    this.user = null;
  }
}

/** Whose a token is, as far as it says; null if it doesn't. */
function userOf(token: unknown): string | null {
  try {
    const [, claims = ""] = String(token).split(".");
    const { sub } = JSON.parse(atob(claims.replaceAll("-", "+").replaceAll("_", "/")));
    return typeof sub === "string" ? sub : null;
  } catch {
    return null;
  }
}
