/**
 * One reader's connection: chooses the gateway to try, gives it up, reconnects.
 *
 * It owns no socket, no clock, no timer and no randomness: callers pass `now` (ms since the epoch), call
 * `wake()` at the time of `due()`, and carry out the effects that it emits. The messages on a connection
 * are in conversation.ts.
 *
 * The decision to question: there is no table of subscriptions beside the one of topics. For a tab that joins late a
 * topic which another follows, the topic is subscribed anew with its start, and then once more from the common
 * position. The gateway obeys verbs one after the other, so replies show which messages are the newcomer's alone.
 */

import type { State } from "./api.ts";
import { BROKEN, INVALID_TOKEN, TOKEN_EXPIRED } from "./closing.ts";
import { Conversation, isLogin } from "./conversation.ts";
import { Dialler } from "./dialler.ts";
import type { Effect } from "./effects.ts";
import { Finder } from "./finder.ts";
import { HEARTBEAT, Liveness } from "./liveness.ts";
import type { Heartbeat } from "./liveness.ts";
import type { Details, ToConnection, ToTabs } from "./notes.ts";
import { keyOf } from "./regions.ts";
import type { RegionAnswer, Candidate, Random, KnownRegions } from "./regions.ts";
import { Retries } from "./retries.ts";
import type { Loss } from "./retries.ts";
import { Timers } from "./timers.ts";
import type { GatewayPush, Verb } from "./wire.ts";

const CLOSING_MS = 1000; // from a `disconnect` push to the close that proxies may have eaten

/** state → event → next state. An event that a state doesn't list changes nothing. */
export const STATES: Record<State["state"], Record<string, State["state"]>> = {
  idle: { start: "finding", stop: "stopped" },
  finding: { found: "connecting", lost: "waiting", stop: "stopped" },
  connecting: { opened: "open", lost: "waiting", stop: "stopped" },
  open: { found: "connecting", anew: "finding", lost: "waiting", stop: "stopped" },
  waiting: { retry: "finding", stop: "stopped" },
  stopped: { start: "finding" },
};

/** The state after `event`; the same state if the table doesn't list it. */
export function nextState(state: State["state"], event: string): State["state"] {
  return STATES[state][event] ?? state;
}

interface SessionOptions {
  regions: KnownRegions;
  random: Random;
  emit: (effect: Effect) => void;
  transports: string[];
  heartbeat?: Heartbeat;
}

export class Session {
  state: State["state"] = "idle";
  details: Details = {};
  #emit;
  #endsLogin = false; // true if a token had been sent when the gateway said goodbye
  #timers = new Timers();
  #retries: Retries;
  #finder: Finder;
  #dialler: Dialler;
  #liveness: Liveness;
  #conversation: Conversation;

  constructor({ regions, random, emit, transports, heartbeat = HEARTBEAT }: SessionOptions) {
    this.#emit = emit;
    this.#retries = new Retries(random);
    const timers = this.#timers;
    const discover = () => emit({ do: "discover" });
    const send = (verb: Verb) => emit({ do: "send", verb });
    const onFound = (candidates: Candidate[], now: number) => this.#found(candidates, now);
    const onNone = (loss: Loss, now: number) => this.#lost(loss, now);
    const onWrong = (reason: string) => emit({ do: "note", note: { t: "error", error: { code: 0, reason } } });
    this.#finder = new Finder({ regions, timers, random, discover, onFound, onNone, onWrong });
    this.#dialler = new Dialler({ regions, timers, transports, emit, onNone });
    const ping = () => send({ action: "ping" });
    this.#liveness = new Liveness({ timers, heartbeat, ping, onDead: (now) => this.#giveUp("no sign of life", now) });
    const out = { send, notify: (note: ToTabs) => emit({ do: "note", note }) };
    this.#conversation = new Conversation({ timers, random, out, tellState: () => this.#tellState(), anew: () => this.#anew() });
    timers.when({ retry: () => this.#find("retry"), closing: (now) => this.#giveUp("", now) });
  }

  /** Time of the next `wake()`, at the latest; null while nothing waits. */
  due(): number | null {
    return this.#timers.next();
  }

  /** Do due work. Also right after the device has woken up: any timer may have been missed. */
  wake(now: number): void {
    const { setBack, hasSlept } = this.#timers.tick(now);
    if (setBack) for (const part of [this.#conversation, this.#liveness, this.#retries, this.#dialler]) part.shift(setBack);
    if (hasSlept) this.recheck(now);
    this.#timers.run(now);
  }

  /** A turn of the event loop is over: send its output. Callers do so after each event. */
  turned(now: number): void {
    if (this.state === "open") this.#conversation.turned(now);
  }

  /** The page is visible, the network is back or the device is awake: don't wait, and don't trust the socket. */
  recheck(now: number): void {
    if (this.state === "open" && !this.#timers.has("closing")) this.#liveness.ping(now);
    if (this.state === "waiting") this.#timers.soon("retry", this.#retries.soonest(now));
  }

  hide(isHidden: boolean, now: number): void {
    this.#timers.hide(isHidden);
    this.#liveness.hide(isHidden);
    if (!isHidden) this.recheck(now);
  }

  start(now: number): void {
    this.#timers.tick(now);
    this.#find("start");
  }

  #find(event: string): void {
    this.#move(event);
    this.#finder.start();
  }

  /** The regions' answers. A gateway that has said goodbye is obeyed, whether home is back or not. */
  discovered(answers: RegionAnswer[], now: number): void {
    if (!this.#timers.has("closing")) this.#finder.discovered(answers, this.state, now);
  }

  #found(candidates: Candidate[], now: number): void {
    if (this.state === "open") {
      this.#emit({ do: "hangup" });
      this.#forgetConnection();
    }
    this.#move("found", { region: candidates[0]?.region });
    this.#dialler.start(candidates, now);
  }

  opened(transport: string, now: number): void {
    this.#timers.clear();
    this.#retries.opened(now);
    const { url, region, gateway, ms } = this.#dialler.target;
    this.#move("opened", { region, transport, gateway: keyOf(gateway) });
    this.#liveness.opened(ms, now);
    this.#finder.opened(url, now);
    this.#conversation.connected(now);
  }

  /** Any data has arrived. */
  heard(now: number): void {
    this.#liveness.heard(now);
  }

  /** A push has arrived, as an object. */
  push(push: GatewayPush, now: number): void {
    this.#dialler.hasSpoken = true;
    if (push.type !== "disconnect") return this.#conversation.push(push, now);
    this.#retries.notice = push;
    this.#endsLogin = this.#conversation.hasSentToken;
    return this.#timers.set("closing", now + CLOSING_MS);
  }

  /** The socket is closed, or never opened. */
  closed(how: Loss, now: number): void {
    if (this.state === "connecting") this.#dialler.refused(now);
    else if (this.state === "open") this.#lost(how, now);
  }

  /** True if the gateway answers over HTTP. */
  probed(isAlive: boolean, now: number): void {
    if (this.state === "connecting") this.#dialler.probed(isAlive, now);
  }

  #giveUp(reason: string, now: number): void {
    this.#emit({ do: "hangup" });
    this.#lost({ code: BROKEN, reason }, now);
  }

  /** The attempt or the connection is over: wait as the gateway asked, or stop. */
  #lost(loss: Loss, now: number): void {
    if (this.state === "open") this.#dialler.lost(this.#retries.openFor(now), now);
    const { code, reason, wait } = this.#retries.after(loss, now, this.#retries.notice ? this.#endsLogin : this.#conversation.hasSentToken);
    if (code === INVALID_TOKEN && wait !== null) this.#conversation.revoked(reason, code);
    if (code === TOKEN_EXPIRED) this.#conversation.tokenExpired(reason, code);
    this.#forgetConnection();
    if (wait === null) return this.#move("stop", { reason, code });
    this.#timers.set("retry", now + wait);
    return this.#move("lost", { reason, wait });
  }

  /** Another connection at once, of another user. */
  #anew(): void {
    this.#emit({ do: "hangup" });
    this.#forgetConnection();
    this.#find("anew");
  }

  #forgetConnection(): void {
    this.#timers.clear();
    this.#retries.disconnected();
    this.#liveness.disconnected();
    this.#conversation.disconnected();
  }

  /** A note from a tab. */
  note(note: ToConnection, now: number): void {
    if (note.t === "look") return this.#liveness.looked(now);
    this.#conversation.note(note, now);
    if (note.t === "ask" && isLogin(note.verb) && this.state === "stopped") this.start(now);
  }

  #move(event: string, details: Details = {}): void {
    this.state = nextState(this.state, event);
    this.details = { region: this.details.region, alternates: this.#finder.alternates, ...details };
    this.#tellState();
  }

  #tellState(): void {
    this.#emit({ do: "note", note: { t: "state", state: this.state, details: { ...this.details, user: this.#conversation.user } } });
  }
}
