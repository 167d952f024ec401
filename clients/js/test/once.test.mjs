/**
 * Each message once, and none missing, whatever happens: tabs that come and go, connections cut at any moment,
 * gateways and regions changed, the connection handed from tab to tab. Against a model of the fabric, at random.
 */

import assert from "node:assert/strict";
import { test } from "node:test";

import { HOME, Rig, answersOf, idOf, randomsOf } from "./support.mjs";

const TOPIC = "news.breaking";

/** Gateways that each receive every message at a time of their own, and obey docs/protocol.md. */
class RandomFabric {
  constructor(random, gateways, hasStore) {
    Object.assign(this, { random, hasStore });
    this.published = 0;
    this.positions = []; // token's number → what it covers
    this.gateways = Array.from({ length: gateways }, () => ({ arrived: [], coming: [], readers: new Set() }));
  }

  publish() {
    this.published += 1;
    for (const gateway of this.gateways) gateway.coming.splice(Math.floor(this.random() * (gateway.coming.length + 1)), 0, this.published);
  }

  /** The next message reaches `gateway`. */
  arrive(gateway) {
    const number = gateway.coming.shift();
    if (number === undefined) return;
    gateway.arrived.push(number);
    for (const reader of gateway.readers) if (reader.isSubscribed) reader.outbox.push(this.message(gateway, number));
  }

  message(gateway, number, position = this.position(gateway)) {
    // Each copy was routed at a time of its own.
    const id = idOf({ n: number, at: 1_735_689_600_000 + number * 10 + Math.floor(this.random() * 9) });
    return { type: "message", topic: TOPIC, id, position, body: number };
  }

  position(gateway, covered = gateway.arrived) {
    return `p${this.positions.push(new Set(covered)) - 1}`;
  }

  /** Obey one verb of `reader`. */
  obey(gateway, reader, { action, topic, ref, position, rewind }) {
    const reply = (fields) => reader.outbox.push({ ref, topic, ...fields });
    if (action === "ping") reply({ type: "pong" });
    if (action === "unsubscribe") {
      reader.isSubscribed = false;
      reply({ type: "unsubscribed" });
    }
    if (action !== "subscribe") return;
    if (reader.isSubscribed) {
      reply({ type: "error", code: 105, reason: "already subscribed", temporary: false });
      return;
    }
    reader.isSubscribed = true;
    if (position === undefined) {
      const replay = gateway.arrived.slice(gateway.arrived.length - (rewind ?? 0));
      reply({ type: "subscribed", recovered: false, position: this.position(gateway) });
      for (const number of replay) reader.outbox.push(this.message(gateway, number, null));
      return;
    }
    const covered = this.positions[Number(position.slice(1))];
    // From the store, some come again although the position covers them.
    const again = this.hasStore ? 0.1 : 0;
    const replay = gateway.arrived.filter((number) => !covered.has(number) || this.random() < again);
    reply({ type: "subscribed", recovered: true, position: replay.length ? position : this.position(gateway) });
    replay.forEach((number, n) => {
      const isLast = n === replay.length - 1;
      // Messages that are read from the store have no position.
      const token = this.hasStore && !isLast ? null : this.position(gateway, [...covered, ...replay.slice(0, n + 1)]);
      reader.outbox.push(this.message(gateway, number, token));
    });
  }
}

/** A browser: tabs, one of which has the connection. Bytes on the wire wait until the test moves them on. */
class Browser {
  constructor(fabric, random) {
    Object.assign(this, { fabric, random, tabs: [], subscriptions: [], made: 0 });
    this.lead();
  }

  /** Another tab takes over: a new session, to which all tabs say where they are. */
  lead() {
    this.cut();
    this.rig = new Rig({ random: this.random, urls: [HOME], emit: (effect) => this.carryOut(effect) });
    this.rig.do("start");
    for (const tab of this.tabs) tab.hello();
  }

  carryOut({ do: what, verb, note }) {
    if (what === "discover") this.next = () => this.rig.do("discovered", answersOf([HOME, 20, ["g"]]));
    else if (what === "open") this.next = () => this.open();
    else if (what === "probe") this.next = () => this.rig.do("probed", false);
    else if (what === "send") this.reader?.inbox.push(verb);
    else if (what === "hangup") this.cut();
    else if (what === "note") for (const tab of this.tabs) tab.note(note);
  }

  open() {
    const { gateways } = this.fabric;
    this.gateway = gateways[Math.floor(this.random() * gateways.length)];
    this.reader = { inbox: [], outbox: [], isSubscribed: false };
    this.gateway.readers.add(this.reader);
    this.rig.do("opened", "websocket");
  }

  cut() {
    this.gateway?.readers.delete(this.reader);
    this.reader = null;
  }

  newTab() {
    this.made += 1;
    const { tab } = this.rig.tab(`tab${this.made}`, null, (note) => this.rig.do("note", note));
    this.tabs.push(tab);
    tab.hello();
    return tab;
  }

  follow(tab, rewind) {
    const everywhere = this.fabric.gateways.map(({ arrived }) => new Set(arrived)).reduce((a, b) => new Set([...a].filter((n) => b.has(n))));
    const subscription = { tab, rewind, got: [], everywhere, since: null, gaps: 0 };
    subscription.handle = tab.follow(TOPIC, {
      rewind: rewind || null,
      onMessage: ({ body }) => subscription.got.push(body),
      onSubscribed: () => (subscription.since ??= this.fabric.published),
      onGap: () => (subscription.gaps += 1),
    });
    this.subscriptions.push(subscription);
  }

  closeTab(tab) {
    this.tabs.splice(this.tabs.indexOf(tab), 1);
    this.subscriptions = this.subscriptions.filter((one) => one.tab !== tab);
    tab.close();
  }

  /** Make one step between browser and gateway; false if there was none to make. */
  move() {
    this.turn();
    const { next, reader } = this;
    this.next = null;
    if (next) next();
    else if (reader?.outbox.length) this.rig.push(reader.outbox.shift());
    else if (reader?.inbox.length) this.fabric.obey(this.gateway, reader, reader.inbox.shift());
    else if (this.rig.session.state === "waiting") this.rig.pass(Math.max(1, this.rig.session.due() - this.rig.now));
    else return false;
    return true;
  }

  /** A turn of the event loop is over, and some time has passed. */
  turn() {
    this.rig.now += 125;
    this.rig.do("turned");
  }

  /** The same, but waiting steps may overtake: verbs are carried out while pushes are under way. */
  moveAnything() {
    this.turn();
    const { reader } = this;
    if (reader?.inbox.length && this.random() < 0.5) this.fabric.obey(this.gateway, reader, reader.inbox.shift());
    else this.move();
  }
}

function play(seed, steps) {
  const random = randomsOf(seed);
  const pick = (list) => list[Math.floor(random() * list.length)];
  const fabric = new RandomFabric(random, 1 + Math.floor(random() * 3), seed % 2 === 0);
  const browser = new Browser(fabric, random);
  const first = browser.newTab();
  browser.follow(first, 0);
  for (let step = 0; step < steps; step += 1) {
    const dice = random();
    if (dice < 0.2) fabric.publish();
    else if (dice < 0.4) fabric.arrive(pick(fabric.gateways));
    else if (dice < 0.42 && browser.reader) {
      browser.cut();
      browser.rig.do("closed", { code: 1006 });
    } else if (dice < 0.43) browser.lead();
    else if (dice < 0.45 && browser.tabs.length < 4) browser.follow(browser.newTab(), Math.floor(random() * 5));
    else if (dice < 0.46) browser.follow(first, Math.floor(random() * 5));
    else if (dice < 0.47 && browser.tabs.length > 1) browser.closeTab(browser.tabs.at(-1));
    else browser.moveAnything();
  }
  for (let last = 0; last < 3; last += 1) {
    while (browser.move());
    for (const gateway of fabric.gateways) while (gateway.coming.length) fabric.arrive(gateway);
  }
  return { fabric, browser };
}

test("each message is handed over once and none is missing, whatever happens", () => {
  for (let seed = 1; seed <= 400; seed += 1) {
    const { fabric, browser } = play(seed, 400);
    for (const { tab, got, rewind, everywhere, since, gaps } of browser.subscriptions) {
      const who = `seed ${seed}, ${tab.id}, rewind ${rewind}`;
      assert.equal(new Set(got).size, got.length, `${who}: twice`);
      assert.notEqual(since, null, `${who}: never served`);
      const missing = Array.from({ length: fabric.published - since }, (_, n) => since + n + 1).filter((n) => !got.includes(n));
      assert.deepEqual(missing, [], `${who}: missing`);
      // Beside a tab that is just catching up, it may get some messages that the other tab had missed.
      const old = fabric.hasStore ? 0 : got.filter((n) => everywhere.has(n)).length;
      assert.ok(old <= rewind, `${who}: ${old} messages from before it came`);
      assert.equal(gaps, 0, who);
    }
  }
});
