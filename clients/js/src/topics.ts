/** The topics of one connection by name, and the topic of each reply of the gateway. Pure. */

import type { Output, Interest } from "./notes.ts";
import type { VerbOutbox } from "./outbox.ts";
import { Topic } from "./topic.ts";
import type { SentVerb } from "./topic.ts";
import type { GatewayPush, ErrorFields, Verb } from "./wire.ts";

const PUSHES = ["message", "acked", "read", "dismissed"];

export class Topics {
  #topics = new Map<string, Topic>(); // by name
  #asked = new Map<string, { topic: Topic; asked: SentVerb }>(); // by ref
  #refs = 0;
  #out: Output;
  #outbox: VerbOutbox;

  constructor(out: Output, outbox: VerbOutbox) {
    this.#out = out;
    this.#outbox = outbox;
  }

  /** Serve `interest` from now on; `ready` says whether verbs can be sent. */
  follow(interest: Interest, ready: boolean): void {
    const known = this.#topics.get(interest.topic);
    if (known) return known.interests.has(interest.key) ? known.renew(interest) : known.join(interest);
    const { topics: most } = this.#outbox.limits;
    if (this.#topics.size >= most) return this.#out.notify({ t: "refused", topic: interest.topic, keys: [interest.key], error: tooMany(most) });
    const topic: Topic = new Topic(interest, (verb, asked) => this.#send(verb, { topic, asked }), this.#out.notify);
    this.#topics.set(interest.topic, topic);
    if (ready) topic.subscribe();
  }

  leave(key: string): void {
    for (const topic of this.#topics.values()) {
      if (!topic.interests.has(key)) continue;
      topic.leave(key);
      if (topic.interests.size) return this.#left(key);
      this.#topics.delete(topic.name);
      this.#withdraw(topic.name);
      if (!this.#outbox.mayHave(topic.name)) return this.#left(key);
      return this.#send({ action: "unsubscribe", topic: topic.name }, { topic, asked: { what: "leave", key } });
    }
    return this.#left(key);
  }

  /** A tab is gone: end its subscriptions. */
  leaveAll(tab: string): void {
    const keys = [...this.#topics.values()].flatMap(({ interests }) => [...interests.keys()]);
    for (const key of keys.filter((one) => one.startsWith(`${tab}/`))) this.leave(key);
  }

  connected(): void {
    this.#subscribe("away");
  }

  disconnected(): void {
    for (const ref of this.#asked.keys()) this.#forget(ref);
    for (const topic of this.#topics.values()) topic.disconnected();
  }

  /** Try the refused ones again. */
  loggedIn(): void {
    this.#subscribe("refused");
  }

  #left(key: string): void {
    this.#out.notify({ t: "left", keys: [key] });
  }

  /** The last verb has no further answer. */
  #forget(ref: string): void {
    const { what, key } = this.#asked.get(ref)?.asked ?? {};
    this.#asked.delete(ref);
    if (what === "leave") this.#left(key!);
  }

  /** Drop waiting verbs that subscribe to a topic or leave it. */
  #withdraw(name: string): void {
    for (const ref of this.#outbox.withdraw(name)) this.#forget(ref);
  }

  /** Repeat verbs that were refused for the moment, or never answered: a gateway in a hurry doesn't name them. */
  again(): void {
    for (const topic of this.#topics.values()) {
      if (topic.phase === "asked") this.#withdraw(topic.name);
      topic.again();
    }
    for (const [ref, { topic, asked }] of this.#asked) {
      if (asked.what === "leave" && !this.#topics.has(topic.name)) this.#out.send({ action: "unsubscribe", topic: topic.name, ref });
    }
  }

  #subscribe(phase: Topic["phase"]): void {
    for (const topic of this.#topics.values()) if (topic.phase === phase) topic.subscribe();
  }

  /** True if all pushes of topic `name` arrive, now or after it has caught up. */
  isServed(name: string): boolean {
    const phase = this.#topics.get(name)?.phase;
    return phase === "live" || phase === "asked";
  }

  /** Take a push that is about a topic of ours; returns true if it was. */
  push(push: GatewayPush): boolean {
    if (push.ref !== undefined && push.ref !== null) return this.#reply(push);
    if (!PUSHES.includes(push.type)) return false;
    this.#topics.get(push.topic)?.push(push);
    return true;
  }

  #reply(push: GatewayPush): boolean {
    const found = this.#asked.get(push.ref);
    if (!found) return false;
    this.#forget(push.ref);
    const { topic, asked } = found;
    if (push.type === "unsubscribed" && this.#isLeft(topic.name)) this.#outbox.hasLeft(topic.name);
    if (this.#topics.get(topic.name) !== topic) return true;
    topic.reply(push, asked);
    if (topic.phase === "over") this.#topics.delete(topic.name);
    return true;
  }

  /** True if a topic has no followers and no open verbs. */
  #isLeft(name: string): boolean {
    return !this.#topics.has(name) && ![...this.#asked.values()].some(({ topic }) => topic.name === name);
  }

  #send(verb: Verb, asked: { topic: Topic; asked: SentVerb }): void {
    this.#refs += 1;
    const ref = `t${this.#refs}`;
    this.#asked.set(ref, asked);
    this.#out.send({ ...verb, ref });
  }
}

function tooMany(most: number): ErrorFields {
  return { code: 106, reason: `${most} topics are followed already, and a connection may have no more: unsubscribe from one first` };
}
