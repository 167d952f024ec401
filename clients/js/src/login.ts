/**
 * The login of a connection's reader: the token, its renewal, and the requests that await its result. Pure.
 *
 * A token that is refused for good isn't sent again, on later connections neither. A token that is refused for the
 * moment stays, as does one that a gateway in a hurry may not have read: `again()` repeats it, and so does the next
 * connection. Each refusal is reported to pages; `login` events report the final success.
 *
 * Each question has a number, and an answer counts for its own alone: a token that a page's function makes late is not
 * sent on a connection that has asked for a newer one. Of two logins each page gets its own result.
 */

import type { Output } from "./notes.ts";
import { isError } from "./wire.ts";
import type { Random } from "./regions.ts";
import type { ErrorPush, GatewayPush } from "./wire.ts";

const UNAUTHORIZED = 101;

export class LoginState {
  /** The user who is logged in. */
  user: { user: string; expires_at: number | null } | null = null;
  #wanted = false;
  #knowsBetter = false; // a user was logged in or out, or was refused
  #token: unknown = null; // the last token that was given
  #accepted: unknown = null; // the last token that was accepted
  #refused: unknown = null;
  /** Tokens in a row that were refused for good while no request awaited the answer. */
  refusals = 0;
  #error: ErrorPush | null = null; // the reason, reported if no tab has a better token
  #keys = new Map<string, string>(); // of requests that await an answer → the ref of their verb; "" until it is sent
  #sent = new Map<string, unknown>(); // ref → the token, on this connection
  #ref = ""; // of the last verb
  #isOpen = false; // true while that one has no answer that settles it
  #question: number; // the last question to tabs; those of other connections end in other decimals
  #isAsking = false; // true while it is open
  #refs = 0;
  #out: Output;

  constructor(out: Output, random: Random) {
    this.#out = out;
    this.#question = random();
  }

  /** A tab knows with which token the browser was logged in, which stays valid unless this connection knows better. Returns true if that is new. */
  adopt(token: string): boolean {
    const isNews = !this.#wanted && !this.#knowsBetter;
    if (isNews) this.#token = token;
    this.#wanted ||= isNews;
    return isNews;
  }

  /** A tab has a token to offer. Returns true if that is new. */
  want(): boolean {
    const isNews = !this.#wanted;
    this.#wanted = true;
    return isNews;
  }

  /** True if a login is wanted, but the token has to be asked for. */
  get lacksToken(): boolean {
    return this.#wanted && this.#token === null;
  }

  /** Send the login, if one is wanted. */
  sendToken(): void {
    if (!this.#wanted) return;
    this.#refs += 1;
    this.#ref = `l${this.#refs}`;
    this.#isOpen = true;
    this.#sent.set(this.#ref, this.#token);
    for (const [key, ref] of this.#keys) if (!ref) this.#keys.set(key, this.#ref);
    this.#send();
  }

  /** Repeat the login, if it isn't settled. If both are read, they are the same login, with the same answer. */
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

  /** True if `question` is the present one to tabs; tabs of an older version don't name it. */
  asks(question = this.#question): boolean {
    return this.#isAsking && question === this.#question;
  }

  /** A tab brings the requested token; null if it has none. Returns true if the token is to be sent; if not, another tab may have one. */
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
  logIn(key: string, token: unknown): void {
    this.#wanted = true;
    this.#isAsking = false;
    this.#token = token;
    this.#keys.set(key, "");
  }

  /** The consequence of the gateway's `push` for the login, if any. */
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

  /** Without a `ref` it is from a cookie that only the gateway knows. */
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

  /** Tabs keep it for the next connection, which any of them may lead. */
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
    // The page's function makes tokens faster than they can be refused: it is called again after a while.
    if (this.refusals > 1) return this.#out.notify({ t: "error", error: push });
    // A tab may have a newer one; if none has, the fault of this one is reported to the page.
    this.#error = push;
    this.askForToken();
  }

  /** Verbs are answered in order: a verb before the last one without an answer was never read, and shares its. */
  #answer(ref: string, push: GatewayPush): void {
    const isLast = ref === this.#ref;
    for (const sent of this.#sent.keys()) if (isLast && sent !== ref) this.#sent.delete(sent);
    for (const [key, asked] of this.#keys) {
      if (!isLast && asked !== ref) continue;
      this.#keys.delete(key);
      this.#out.notify({ t: "answer", key, push });
    }
  }

  /** The token has expired: the next one must be another. */
  expired(reason: string, code: number): void {
    this.#tellOut(reason, code);
    this.#token = null;
  }

  /** True if a token was sent on this connection. */
  get hasSent(): boolean {
    return this.#sent.size > 0;
  }

  /** Log out and drop all wanted logins; requests that await one get the reason. */
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

  /** True if `token` belongs to another user than the present one: it can't be sent on this connection. */
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

/** The token's user, as far as it names one; null if it doesn't. */
function userOf(token: unknown): string | null {
  try {
    const [, claims = ""] = String(token).split(".");
    const { sub } = JSON.parse(atob(claims.replaceAll("-", "+").replaceAll("_", "/")));
    return typeof sub === "string" ? sub : null;
  } catch {
    return null;
  }
}
