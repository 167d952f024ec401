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

/** The reason of a verb for a topic, until its reply arrives. */
export interface SentVerb {
  what: "subscribe" | "catch up" | "make way" | "subscribe newcomer" | "go on" | "leave";
  /** True if the subscription begins at a position. */
  resumed?: boolean;
  /** The newcomer's, or the leaving one's. */
  key?: string;
}

export class Topic {
  readonly name: string;
  phase: "away" | "asked" | "live" | "refused" | "again" | "over" = "away";
  readonly interests = new Map<string, Interest>(); // by key
  #first: Interest | null; // until it is served
  #newcomers = new Newcomers();
  #serving: string[] | null = null; // the only receiver of messages, at the moment
  #position: string | null;
  #isExact = true; // no message has arrived since this position
  #error: ErrorFields | null = null; // the last one
  #send;
  #notify;

  /** `send` takes verbs for the gateway, whose replies come to `reply()`; `notify` takes notes for the tabs. */
  constructor(interest: Interest, send: (verb: Verb, asked: SentVerb) => void, notify: Output["notify"]) {
    this.name = interest.topic;
    this.interests.set(interest.key, interest);
    this.#first = interest;
    this.#position = interest.position ?? null;
    this.#send = send;
    this.#notify = notify;
  }

  /** Serve one more interest. */
  join(interest: Interest): void {
    this.interests.set(interest.key, interest);
    // Exactly at the topic's position: a subscription that got all messages has the position of the last one.
    if (interest.position !== null && interest.position === this.#position && this.#isExact) return;
    this.#newcomers.add(interest);
    this.#catchUp();
    if (this.phase === "refused" && this.#error) this.#notify({ t: "refused", topic: this.name, keys: [interest.key], error: this.#error });
  }

  /** A tab repeats its interest, which counts until it is served: a leader may read notes late that were for another. */
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

  /** Subscribe: an interest with a position resumes, or asks for `since`; all others begin with the first one's start. */
  subscribe(): void {
    this.phase = "asked";
    this.#serving = null;
    // The gateway may have left any of a newcomer's verbs unread.
    this.#newcomers.restart(this.interests);
    const position = this.#position;
    const resumed = position !== null;
    this.#send(subscribing(this.name, resumed ? { position } : { rewind: this.#first?.rewind }), { what: "subscribe", resumed });
  }

  /** The last verb may have been refused for the moment, or left unread. */
  again(): void {
    if (this.phase === "again" || this.phase === "asked") return this.subscribe();
    if (this.phase !== "live") return;
    this.#newcomers.restart(this.interests);
    this.#catchUp();
  }

  /** A push for the topic's followers. */
  push(push: GatewayPush): void {
    // While a newcomer is served, positions are of its subscription, not of the one that stays.
    const position = this.phase === "live" ? push.position : null;
    this.#isNowAt(position);
    this.#notify({ t: "push", push: { ...push, position }, keys: this.#serving ?? this.#served() });
  }

  /** The gateway's reply to the last verb. */
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

  /** The receivers of messages. By name: a subscription that joins while this is on its way to a tab must not take it for its own. */
  #served(): string[] {
    const waiting = this.#newcomers.keys;
    return [...this.interests.keys()].filter((key) => !waiting.includes(key));
  }

  /** Before a newcomer is served: let the topic finish catching up, so that its position is final. */
  #catchUp(): void {
    if (this.phase === "live" && this.#newcomers.await()) this.#send({ action: "ping" }, { what: "catch up" });
  }

  #caughtUp(): void {
    const newcomer = this.#newcomers.next(this.phase === "live");
    if (!newcomer) return;
    this.phase = "asked";
    const { key } = newcomer;
    const leave: Verb = { action: "unsubscribe", topic: this.name };
    this.#send(leave, { what: "make way", key });
    this.#send(subscribing(this.name, newcomer), { what: "subscribe newcomer", key, resumed: newcomer.position != null });
    this.#send(leave, { what: "go on" });
    this.#send(subscribing(this.name, { position: this.#position }), { what: "go on", resumed: true });
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

  /** Subscribe anew, since the topic is not served from the former position: the gateway left the newcomer's unsubscribe unread. */
  #subscribeAnew(): void {
    this.#send({ action: "unsubscribe", topic: this.name }, { what: "go on" });
    this.subscribe();
  }

  /** No position of this fabric: begin anew, and report that messages may be missing. */
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
