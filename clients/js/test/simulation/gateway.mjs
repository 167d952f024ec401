/**
 * The fabric beyond the wire: topics, and gateways that answer verbs by the table that the real gateway's code gives
 * (protocol.json, made by tests/support/answers.py). The rest is added here by docs/protocol.md:
 * positions, replays and pushes.
 *
 * Gateways know no page: a `reader` is an object with `deliver(push)`, `end(code)` and a `user`.
 */

import { readFileSync } from "node:fs";

import { idOf } from "../support.mjs";

const PROTOCOL = JSON.parse(readFileSync(new URL("protocol.json", import.meta.url), "utf-8"));
export const { closes: CLOSES, limits: LIMITS, topics: TOPICS } = PROTOCOL;
const TOO_MANY = { type: "error", code: 111, reason: "too many requests", temporary: true };
const PUSH_OF = { ack: "acked", read: "read", dismiss: "dismissed" };

/** A token: who it makes of its bearer, until when (ms); `number` tells it from others. */
export function tokenOf({ user, number, expires, isBroken = false }) {
  return `${isBroken ? "broken" : "good"} ${user} ${number} ${expires}`;
}

function readToken(text) {
  const [form, user, , expires] = typeof text === "string" ? text.split(" ") : ["no string"];
  return { form, user, expires: Number(expires) };
}

/** The position of a reader: the messages of a topic that it was given, as bits of a number, behind a letter. */
function positionOf(covered) {
  return `P${covered.toString(16)}`;
}

function readPosition(text) {
  return /^P[0-9a-f]+$/.test(text) ? BigInt(`0x${text.slice(1)}`) : null;
}

/** The published messages: per topic a list of entries, messages and marks, which each gateway gets in an order of its own. */
export class SimulatedFabric {
  constructor(world) {
    this.world = world;
    this.gateways = [];
    this.entries = new Map(Object.values(TOPICS).map((topic) => [topic, []]));
  }

  publish(topic, fields = { type: "message" }) {
    const { world } = this;
    const entries = this.entries.get(topic);
    const entry = { topic, n: entries.length, at: world.now, ...fields };
    world.note(topic, "has", entry.type, entry.n);
    entries.push(entry);
    for (const gateway of this.gateways) {
      const delay = world.chance(0.1) ? world.ms(0, 3000) : world.ms(1, 200);
      world.after(delay, () => gateway.arrive(entry));
    }
    return entry;
  }

  /** A mark is on its way: it may be lost, and comes once however often it is sent. */
  mark(topic, id, mark) {
    if (this.world.isHealed || this.world.chance(0.8)) {
      this.world.after(this.world.ms(50, 900), () => this.publish(topic, { type: PUSH_OF[mark], id }));
    }
  }
}

export class SimulatedGateway {
  constructor(fabric, region, name) {
    Object.assign(this, { fabric, world: fabric.world, region, name });
    this.arrived = new Map([...fabric.entries.keys()].map((topic) => [topic, []]));
    this.covered = new Map([...fabric.entries.keys()].map((topic) => [topic, 0n]));
    this.readers = new Set();
    this.isStarting = false;
    fabric.gateways.push(this);
  }

  arrive(entry) {
    this.arrived.get(entry.topic).push(entry);
    this.covered.set(entry.topic, this.covered.get(entry.topic) | (1n << BigInt(entry.n)));
    for (const reader of this.readers) if (reader.topics.has(entry.topic)) reader.deliver(this.push(entry, reader, this.#position(entry.topic)));
  }

  /** `entry` as a push to `reader`; the body says which place it has in the gateway's order. */
  push({ topic, type, n, id, at }, reader, position) {
    if (type !== "message") return { type, topic, id, at, position };
    // Each copy was routed at a time of its own.
    const routed = at + (this.world.chance(0.5) ? 1 : 0);
    return { type, topic, id: idOf({ n, at: routed }), position, body: { n, reader: reader.number, isLive: position !== null && !this.replaying, order: this.#order(topic, n) } };
  }

  #order(topic, n) {
    return this.arrived.get(topic).findLastIndex((entry) => entry.n === n);
  }

  #position(topic) {
    return positionOf(this.covered.get(topic));
  }

  welcome(reader) {
    Object.assign(reader, { topics: new Set(), user: null, badTokens: 0, allowance: LIMITS.verbs, refused: 0, updated: this.world.now, freeAt: 0, logins: 0 });
    this.readers.add(reader);
  }

  /** The reader is gone, or is to go for this reason of the table: then it is notified first, unless a proxy eats that. */
  bye(reader, reason = null) {
    if (!this.readers.delete(reader) || !reason) return;
    const close = CLOSES[reason];
    reader.deliver(close);
    // Proxies eat close frames.
    if (!this.world.chance(0.3)) reader.end(close.code);
  }

  /** `reader` says `verb`: it is obeyed within its rate, one after the other. */
  received(reader, verb) {
    const { now } = this.world;
    reader.allowance = Math.min(LIMITS.verbs, reader.allowance + ((now - reader.updated) / 1000) * LIMITS.verbs_per_second);
    reader.updated = now;
    if (reader.allowance < 1) {
      reader.refused += 1;
      if (reader.refused <= LIMITS.refusals) return reader.deliver(TOO_MANY);
      this.world.broken("the page says so much that it is closed with 4102");
      return this.bye(reader, "too_many_requests");
    }
    reader.allowance -= 1;
    // Some are answered only when the store was asked.
    const isSlow = verb.action !== "ping" && this.world.chance(0.1);
    reader.freeAt = Math.max(reader.freeAt, now + (isSlow ? this.world.ms(10, 900) : 0));
    return this.world.after(reader.freeAt - now, () => this.readers.has(reader) && this.#obey(reader, verb));
  }

  #obey(reader, verb) {
    const { action, topic, ref } = verb;
    const row = this.#row(reader, verb);
    const answer = this.#answer(reader, row);
    const reply = (more) => reader.deliver({ ...answer, ...(topic && { topic }), ...(ref !== undefined && { ref }), ...more });
    if (answer.type === "subscribed") return this.#subscribe(reader, verb, answer, reply);
    if (answer.type === "logged_in" || answer.type === "refreshed") return this.#logIn(reader, verb, reply);
    if (answer.type === "unsubscribed") reader.topics.delete(topic);
    if (answer.type === "marked") this.fabric.mark(topic, verb.id, action);
    reply(answer.type === "marked" ? { id: verb.id } : {});
    const isBad = (action === "login" || action === "refresh") && (answer.code === 109 || row.endsWith("broken"));
    if (isBad && (reader.badTokens += 1) >= LIMITS.bad_tokens) this.bye(reader, "invalid_token");
    return undefined;
  }

  #answer(reader, row) {
    const { answers } = PROTOCOL;
    const starting = this.isStarting && answers[`starting: ${row}`];
    const answer = starting || answers[`${reader.user ? "42" : "nobody"}: ${row}`];
    if (!answer) throw new Error(`the table has no row for ${row}`);
    return answer;
  }

  /** The name of the row in the table, as user 42 would have it. */
  #row(reader, { action, topic, token, position, rewind, limits }) {
    if (limits) return `${action} limits`;
    if (topic === undefined) return token === undefined ? action : `${action} ${this.#kindOf(reader, token)}`;
    const [role] = Object.entries(TOPICS).find(([, name]) => name === topic);
    if (action !== "subscribe") return `${action} ${role}`;
    const interest = position !== undefined ? (readPosition(position) === null ? " bad position" : " position") : rewind ? " rewind" : "";
    return `subscribe ${role}${interest}${reader.topics.has(topic) ? " again" : ""}`;
  }

  #kindOf(reader, text) {
    const { form, user, expires } = readToken(text);
    if (form !== "good") return form;
    if (expires <= this.world.now) return "expired";
    return reader.user && reader.user !== user ? "other's" : "good";
  }

  #logIn(reader, { token }, reply) {
    const { user, expires } = readToken(token);
    reader.user = user;
    reader.logins += 1;
    const { logins } = reader;
    this.world.after(expires - this.world.now, () => logins === reader.logins && this.bye(reader, "token_expired"));
    reply({ user, expires_at: expires });
  }

  #subscribe(reader, { topic, position, rewind }, answer, reply) {
    const arrived = this.arrived.get(topic);
    reader.topics.add(topic);
    const covered = position === undefined ? null : readPosition(position);
    if (covered !== null) return this.#resume(reader, topic, covered, reply);
    const isMailbox = topic === TOPICS.own && !rewind;
    const replayed = isMailbox ? arrived.slice() : arrived.slice(arrived.length - (rewind ?? 0));
    const now = this.#position(topic);
    reply({ position: isMailbox && replayed.length ? undefined : now });
    this.#replay(reader, replayed, (n) => (isMailbox && n === replayed.length - 1 ? now : null));
    return undefined;
  }

  /** With a failing store messages may be missing; with any store, the reader may get a message again. */
  #resume(reader, topic, covered, reply) {
    const { world } = this;
    const missed = this.arrived.get(topic).filter(({ n }) => !(covered & (1n << BigInt(n))) || world.chance(0.05));
    if (!world.isHealed && world.chance(0.1)) {
      reply({ recovered: false, reason: "store", position: this.#position(topic) });
      return this.#replay(reader, missed.filter(() => world.chance(0.5)), () => null);
    }
    reply({ recovered: true, position: missed.length ? positionOf(covered) : this.#position(topic) });
    const fromStore = world.int(missed.length + 1);
    let given = covered;
    return this.#replay(reader, missed, (n) => {
      given |= 1n << BigInt(missed[n].n);
      return n < fromStore && n < missed.length - 1 ? null : positionOf(n === missed.length - 1 ? given | this.covered.get(topic) : given);
    });
  }

  #replay(reader, entries, position) {
    this.replaying = true;
    entries.forEach((entry, n) => reader.deliver(this.push(entry, reader, position(n))));
    this.replaying = false;
  }
}
