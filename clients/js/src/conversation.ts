/**
 * The conversation of a connection with its gateway: the reader's login, the tabs' topics and requests. Pure.
 *
 * Each connection sends the login first, then the subscriptions, then the open requests.
 */

import { LoginState } from "./login.ts";
import { dispatch } from "./notes.ts";
import type { Handlers, Output, ToConnection } from "./notes.ts";
import { VerbOutbox } from "./outbox.ts";
import type { Random } from "./regions.ts";
import { Requests } from "./requests.ts";
import type { Timers } from "./timers.ts";
import { Topics } from "./topics.ts";
import { isError } from "./wire.ts";
import type { GatewayPush, Verb } from "./wire.ts";

const TOKEN_MS = 5000; // a page's function may take so long to make a token before topics that need none are subscribed
const HASTE = { ms: 1000, most: 6 }; // a token is renewed after a second at the soonest, and twice as long each time
const TOO_MANY = 111;

type Note = Exclude<ToConnection, { t: "look" }>;

interface ConversationOptions {
  timers: Timers;
  random: Random;
  /** Takes verbs for the gateway, at its pace, and notes for the tabs. */
  out: Output;
  /** Reports the state to the tabs. */
  tellState: () => void;
  /** Ends the connection, and begins another: each belongs to one user. */
  anew: () => void;
}

export class Conversation {
  #options: ConversationOptions;
  #timers: Timers;
  #outbox = new VerbOutbox();
  #login: LoginState;
  #topics: Topics;
  #requests: Requests;
  #isOpen = false;
  #haste = 0; // tokens in a row that had to be renewed at once: then this device's clock is wrong

  constructor(options: ConversationOptions) {
    const { out, timers } = options;
    this.#options = options;
    this.#timers = timers;
    const paced = { send: (verb: Verb) => this.#outbox.queue(verb), notify: out.notify };
    this.#login = new LoginState(paced, options.random);
    this.#topics = new Topics(paced, this.#outbox);
    this.#requests = new Requests(paced, timers, (topic) => this.#topics.isServed(topic));
    timers.when({
      token: () => this.#goOn(),
      refresh: () => this.#login.askForToken(),
      again: () => this.#again(),
      say: (now) => this.turned(now),
    });
  }

  /** A turn of the event loop is over: send the waiting verbs, as many as the gateway takes. */
  turned(now: number): void {
    for (const verb of this.#outbox.takeDue(now)) this.#options.out.send(verb);
    const { wait } = this.#outbox;
    if (wait !== null) this.#timers.set("say", now + wait);
  }

  /** The user who is logged in. */
  get user(): string | null {
    return this.#login.user?.user ?? null;
  }

  connected(now: number): void {
    this.#isOpen = true;
    this.#outbox.connected(now);
    this.#begin(now);
  }

  disconnected(): void {
    this.#isOpen = false;
    this.#outbox.disconnected();
    this.#login.disconnected();
    this.#topics.disconnected();
    this.#requests.disconnected();
  }

  /** The token has expired: the next one must be another. */
  tokenExpired(reason: string, code: number): void {
    this.#login.expired(reason, code);
  }

  /** True if the login was sent on this connection. */
  get hasSentToken(): boolean {
    return this.#login.hasSent;
  }

  /** The gateway no longer accepts the login: continue without one. */
  revoked(reason: string, code: number): void {
    this.#login.end(reason, code);
  }

  /** The clock was set by `ms`. */
  shift(ms: number): void {
    this.#requests.shift(ms);
  }

  #begin(now: number): void {
    if (this.#login.lacksToken) {
      this.#login.askForToken();
      this.#timers.set("token", now + TOKEN_MS);
    } else {
      this.#login.sendToken();
      this.#goOn();
    }
  }

  /** With topics that may need a login. */
  #goOn(): void {
    this.#timers.delete("token");
    this.#topics.connected();
    this.#requests.connected();
  }

  get #isReady(): boolean {
    return this.#isOpen && !this.#timers.has("token");
  }

  /* ---- What the gateway pushes ---- */

  push(push: GatewayPush, now: number): void {
    this.#requests.pushed(push);
    if (push.limits) this.#outbox.setLimits(push.limits);
    if (isError(push) && push.code === TOO_MANY) this.#outbox.tooFast(now);
    if (this.#topics.push(push)) {
      // A login may lift a refusal, and time a temporary one.
      if (isError(push)) this.#tryAgain(push, now);
      return;
    }
    const outcome = this.#login.reply(push);
    if (outcome === "in") this.#loggedIn(push, now);
    else if (outcome === "refused") this.#refused(push, now);
    else this.#answer(push, now);
  }

  #loggedIn({ expires_at: expiresAt }: GatewayPush, now: number): void {
    if (Number.isFinite(expiresAt)) {
      const wait = (expiresAt - now) * (0.7 + 0.2 * this.#options.random());
      this.#timers.set("refresh", now + Math.max(HASTE.ms * 2 ** this.#haste, wait));
      this.#haste = wait < HASTE.ms ? Math.min(this.#haste + 1, HASTE.most) : 0;
    }
    this.#options.tellState();
    this.#topics.loggedIn();
  }

  /** A token is invalid. The first time others are asked for at once, then less and less often. */
  #refused(push: GatewayPush, now: number): void {
    this.#tryAgain(push, now);
    const { refusals } = this.#login;
    if (push.temporary || refusals < 2) return;
    const wait = HASTE.ms * 2 ** Math.min(refusals - 2, HASTE.most);
    this.#timers.set("refresh", now + wait * (0.5 + this.#options.random()));
  }

  #answer(push: GatewayPush, now: number): void {
    if (this.#requests.reply(push, now) || !isError(push)) return;
    this.#tryAgain(push, now);
    if (push.code === TOO_MANY) this.#requests.unread(now + 1000 + 4000 * this.#options.random());
    this.#options.out.notify({ t: "error", error: push });
  }

  #tryAgain({ temporary }: GatewayPush, now: number): void {
    if (temporary) this.#timers.soon("again", now + 1000 + this.#options.random() * 4000);
  }

  /** Repeat verbs that were refused for the moment, or may not have been read; the login is first. */
  #again(): void {
    this.#login.again();
    this.#topics.again();
  }

  /* ---- Requests of tabs ---- */

  note(note: Note, now: number): void {
    dispatch(this.#notes, note, now);
  }

  #notes: Handlers<Note, [now: number]> = {
    hello: ({ interests, token, login }, now) => {
      if (login && this.#login.adopt(login) && this.#isOpen) this.#begin(now);
      this.#login.tellToken();
      if (token && this.#login.want() && this.#isOpen) this.#begin(now);
      for (const interest of interests) this.#topics.follow(interest, this.#isReady);
      this.#options.tellState();
    },
    follow: ({ interest }) => this.#topics.follow(interest, this.#isReady),
    leave: ({ key }) => this.#topics.leave(key),
    ask: ({ key, verb }) => {
      if (isLogin(verb)) this.#logIn(key, verb);
      else this.#requests.add(key, verb, this.#isReady);
    },
    token: ({ token, question }) => {
      if (!this.#login.asks(question)) return;
      if (this.#login.bring(token) && this.#isOpen) this.#login.sendToken();
      if (this.#timers.has("token")) this.#goOn();
    },
    logout: () => {
      const { hasSent } = this.#login;
      this.#login.end("logged out", 0);
      if (hasSent) this.#options.anew();
    },
    bye: ({ tab }) => this.#topics.leaveAll(tab),
  };

  #logIn(key: string, { action, token }: Verb): void {
    if (action === "login" && this.#login.isOthers(token)) {
      this.#login.end("another user logs in", 0);
      this.#login.logIn(key, token);
      return this.#options.anew();
    }
    this.#login.logIn(key, token);
    if (this.#isOpen) this.#login.sendToken();
    if (this.#timers.has("token")) this.#goOn();
  }
}

/** True if a page logs in, or continues with a newer token. */
export function isLogin({ action }: Verb): boolean {
  return action === "login" || action === "refresh";
}
