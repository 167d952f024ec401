/**
 * One topic of a connection, subscribed once at the gateway for any number of subscriptions in any number of tabs. Pure.
 *
 * phase → event → phase:
 *
 *   away  --connected-->  asked  --subscribed-->  live
 *   live  --a interest comes late-->  asked            (left, subscribed for the newcomer, left, subscribed again)
 *   asked --refused, a login may mend it-->  refused  --logged in-->  asked
 *   asked --refused, temporary-->  again  --a moment later-->  asked
 *   asked --refused for good-->  over
 *   any   --disconnected-->  away
 */

import { Newcomers } from "./newcomers.ts";
import type { Output, Subscribed, Interest } from "./notes.ts";
import { isError } from "./wire.ts";
import type { GatewayPush, ErrorFields, Verb } from "./wire.ts";

const UNAUTHORIZED = 101;
const ALREADY = 105;
const EXPIRED = 109;
const BAD_POSITION = 112;

/** Why a verb was sent for a topic, until its reply comes. */
export interface SentVerb {
  what: "subscribe" | "catch up" | "make way" | "subscribe newcomer" | "go on" | "leave";
  /** Whether what is subscribed begins at a position. */
  resumed?: boolean;
  /** The newcomer's, or of the one who leaves. */
  key?: string;
}

export class Topic {
  readonly name: string;
  phase: "away" | "asked" | "live" | "refused" | "again" | "over" = "away";
  readonly interests = new Map<string, Interest>(); // by key
  #first: Interest | null; // until it is served
  #newcomers = new Newcomers();
  #serving: string[] | null = null; // whom alone messages are for, at the moment
  #position: string | null;
  #isExact = true; // no message has come since this position
  #error: ErrorFields | null = null; // the last one
  #ask;
  #notify;

  /** `ask` takes verbs for the gateway, whose replies come to `reply()`; `tell` takes notes for the tabs. */
  constructor(interest: Interest, ask: (verb: Verb, asked: SentVerb) => void, notify: Output["notify"]) {
    this.name = interest.topic;
    this.interests.set(interest.key, interest);
    this.#first = interest;
    this.#position = interest.position ?? null;
    this.#ask = ask;
    this.#notify = notify;
  }

  /** Serve one more interest. */
  join(interest: Interest): void {
    this.interests.set(interest.key, interest);
    // Just where the topic is: whoever was told of everything has the position of the last message.
    if (interest.position !== null && interest.position === this.#position && this.#isExact) return;
    this.#newcomers.add(interest);
    this.#catchUp();
    if (this.phase === "refused" && this.#error) this.#notify({ t: "refused", topic: this.name, keys: [interest.key], error: this.#error });
  }

  /** A tab says again what it wants. As long as that isn't served it counts: a leader may read notes late that were for another. */
  renew(interest: Interest): void {
    const { key, position } = interest;
    if (position === this.interests.get(key)?.position) return;
    if (this.#first?.key === key && this.phase === "away") {
      this.#first = interest;
      this.#position = position;
    } else if (this.#first?.key === key || this.#newcomers.keys.includes(key)) {
      this.#newcomers.leave(key);
      this.#newcomers.add(interest);
    } else return;
    this.interests.set(key, interest);
  }

  leave(key: string): void {
    this.interests.delete(key);
    this.#newcomers.leave(key);
  }

  disconnected(): void {
    this.phase = "away";
    this.#newcomers.restart(this.interests);
  }

  /** Ask for it: what has a position comes back, or asked for `since`; anything else begins as the first one wished. */
  subscribe(): void {
    this.phase = "asked";
    this.#serving = null;
    // Of what a newcomer needs, the gateway may have left anything unread.
    this.#newcomers.restart(this.interests);
    const position = this.#position;
    const resumed = position !== null;
    this.#ask(subscribing(this.name, resumed ? { position } : { rewind: this.#first?.rewind }), { what: "subscribe", resumed });
  }

  /** What was asked may have been refused for the moment, or left unread. */
  again(): void {
    if (this.phase === "again" || this.phase === "asked") return this.subscribe();
    if (this.phase !== "live") return;
    this.#newcomers.restart(this.interests);
    this.#catchUp();
  }

  /** Something is pushed to those who follow it. */
  push(push: GatewayPush): void {
    // While a newcomer is served, positions are of its subscription, not of the one that stays.
    const position = this.phase === "live" ? push.position : null;
    this.#isNowAt(position);
    this.#notify({ t: "push", push: { ...push, position }, keys: this.#serving ?? this.#served() });
  }

  /** The gateway's reply to what was asked. */
  reply(push: GatewayPush, asked: SentVerb): void {
    if (push.type === "unsubscribed") this.#serving = asked.what === "make way" ? [asked.key!] : null;
    else if (push.type === "subscribed") this.#subscribed(push.recovered, push.position, asked);
    else if (push.type === "pong") this.#caughtUp();
    else if (isError(push)) this.#refused(push, asked);
  }

  #isNowAt(position: unknown): void {
    this.#isExact = typeof position === "string";
    if (typeof position === "string") this.#position = position;
  }

  /** Whom messages are for. By name: whoever wants the topic while this is on its way to a tab must not take it for his. */
  #served(): string[] {
    const waiting = this.#newcomers.keys;
    return [...this.interests.keys()].filter((key) => !waiting.includes(key));
  }

  /** Before a newcomer is served: let what the topic may still be catching up with come, so that it is where it seems. */
  #catchUp(): void {
    if (this.phase === "live" && this.#newcomers.await()) this.#ask({ action: "ping" }, { what: "catch up" });
  }

  #caughtUp(): void {
    const newcomer = this.#newcomers.next(this.phase === "live");
    if (!newcomer) return;
    this.phase = "asked";
    const { key } = newcomer;
    const leave: Verb = { action: "unsubscribe", topic: this.name };
    this.#ask(leave, { what: "make way", key });
    this.#ask(subscribing(this.name, newcomer), { what: "subscribe newcomer", key, resumed: newcomer.position != null });
    this.#ask(leave, { what: "go on" });
    this.#ask(subscribing(this.name, { position: this.#position }), { what: "go on", resumed: true });
  }

  #subscribed(recovered: boolean, position: string | null = null, { what, key, resumed = false }: SentVerb): void {
    if (what === "subscribe newcomer") {
      this.#newcomers.servedFrom(position);
      this.#tellSubscribed({ keys: [key!], recovered, resumed, position, isNews: true });
      return;
    }
    this.phase = "live";
    this.#newcomers.joined();
    this.#first = null;
    this.#isNowAt(position);
    const isNews = what !== "go on" || !recovered;
    this.#tellSubscribed({ keys: this.#served(), recovered, resumed, position: this.#position, isNews });
    this.#catchUp();
  }

  #tellSubscribed(how: Omit<Subscribed, "topic">): void {
    this.#notify({ t: "subscribed", topic: this.name, ...how });
  }

  #refused(error: ErrorFields, asked: SentVerb): void {
    if (error.code === BAD_POSITION) return this.#withoutPosition(asked);
    if (error.code === ALREADY) return this.phase === "live" ? undefined : this.#subscribeAnew();
    if (asked.what === "subscribe newcomer") return this.#notify({ t: "refused", topic: this.name, keys: [asked.key!], error });
    const isMendable = error.code === UNAUTHORIZED || error.code === EXPIRED;
    this.phase = error.temporary ? "again" : isMendable ? "refused" : "over";
    this.#newcomers.joined();
    this.#error = error;
    return this.#notify({ t: "refused", topic: this.name, keys: [...this.interests.keys()], error });
  }

  /** We have it, but not from where we were: the gateway left unread that a newcomer leaves it. */
  #subscribeAnew(): void {
    this.#ask({ action: "unsubscribe", topic: this.name }, { what: "go on" });
    this.subscribe();
  }

  /** Where we were is nothing that this fabric can have said: begin anew, and say that something may be missing. */
  #withoutPosition({ what, key }: SentVerb): void {
    this.#tellSubscribed({ keys: key ? [key] : this.#served(), recovered: false, resumed: true, position: null, isNews: true });
    if (what === "subscribe newcomer") return;
    this.#position = null;
    this.subscribe();
  }
}

function subscribing(topic: string, { position, rewind }: Partial<Interest>): Verb {
  const verb: Verb = { action: "subscribe", topic };
  if (position != null) verb.position = position;
  if (rewind != null) verb.rewind = rewind;
  return verb;
}
