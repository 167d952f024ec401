/**
 * A history: a browser, two regions, and all their possible events, by chance; then all is healed, and every
 * subscription must be served again. The same seed is the same history, as long as simulation and library are the same.
 */

import { Device } from "./browser.mjs";
import { SimulatedFabric, SimulatedGateway, TOPICS } from "./gateway.mjs";
import { idOf } from "../support.mjs";
import { SimulatedWorld } from "./world.mjs";

const FOLLOWED = [TOPICS.public, TOPICS.public, TOPICS.registered, TOPICS.own];
/** The time from healing until all are served: waits of 30 s, the wait that a gateway asked for, and an attempt. */
const SERVED_WITHIN_MS = 75_000;
const ANSWERED_WITHIN_MS = 20_000;
const MARKS = ["ack", "read", "dismiss"];
const SENT_AWAY = ["drain", "overload", "rebalance", "internal", "slow_reader", "unfinished", "no_pong"];

/** The random events, each with its weight. */
const EVENTS = [
  [30, "publish"],
  [6, "follow"],
  [4, "unfollow"],
  [3, "open"],
  [2, "close"],
  [1, "crash"],
  [5, "block"],
  [1, "sleep"],
  [1, "setClock"],
  [3, "cut"],
  [2, "breakOff"],
  [3, "sendAway"],
  [1, "stopForGood"],
  [2, "regionDies"],
  [3, "regionHeals"],
  [1, "offline"],
  [2, "online"],
  [1, "forbid"],
  [2, "permit"],
  [2, "restart"],
  [4, "hurry"],
  [4, "ask"],
  [2, "logIn"],
  [4, "hide"],
  [2, "steal"],
  [1, "revoke"],
  [1, "flurry"],
];
const ALL_WEIGHTS = EVENTS.reduce((sum, [weight]) => sum + weight, 0);

class History {
  constructor(library, seed) {
    const world = new SimulatedWorld(seed);
    const fabric = new SimulatedFabric(world);
    const region = (name, latency) => ({ name, url: `http://${name}/endpoints.json`, latency, isUp: true, isSilent: false, gateways: [] });
    const regions = [region("oregon", world.ms(10, 60)), region("dublin", world.ms(40, 250))];
    for (const one of regions) for (const n of [1, 2]) one.gateways.push(new SimulatedGateway(fabric, one, `${one.name}-${n}`));
    // A page can't know that a gateway allows less than it says, nor that it is later than its clock says: not where it says as much as it may.
    Object.assign(this, { world, fabric, regions, hasFlurries: world.chance(0.2), device: new Device(world, fabric, regions, library) });
  }

  async play() {
    const { world, device } = this;
    device.open().follow(TOPICS.public);
    for (let steps = world.ms(15, 45); steps > 0 && !world.fault; steps -= 1) {
      await world.run(world.chance(0.1) ? world.ms(1000, 12_000) : world.ms(1, 1500));
      this.happen();
    }
    await this.end();
    return world;
  }

  happen() {
    let left = this.world.int(ALL_WEIGHTS);
    const [, what] = EVENTS.find(([weight]) => (left -= weight) < 0);
    this[what]();
  }

  get #tab() {
    return this.device.tabs.length ? this.world.pick(this.device.tabs) : this.device.open();
  }

  get #link() {
    return this.device.links.size ? this.world.pick([...this.device.links]) : null;
  }

  publish() {
    this.fabric.publish(this.world.pick(FOLLOWED));
  }

  follow() {
    const tab = this.#tab;
    tab.task("event", () => tab.follow(this.world.pick(FOLLOWED)));
  }

  unfollow() {
    const tab = this.#tab;
    const live = tab.subscriptions.filter((one) => !one.hasEnded);
    if (live.length) tab.task("event", () => tab.isOver || tab.unfollow(this.world.pick(live)));
  }

  open() {
    if (this.device.tabs.length > 3) return;
    const tab = this.device.open();
    tab.follow(this.world.pick(FOLLOWED));
  }

  close() {
    this.#tab.close();
  }

  crash() {
    this.#tab.crash();
  }

  block() {
    const { world } = this;
    this.#tab.block(world.chance(0.5) ? world.ms(5000, 40_000) : world.ms(50, 5000));
  }

  sleep() {
    const { world, device } = this;
    const ms = world.ms(10_000, 600_000);
    world.note("the device sleeps for", ms);
    for (const tab of device.tabs) tab.block(ms);
    // The gateways' pings get no answer meanwhile.
    const asleep = [...device.links];
    if (ms > 50_000) world.after(50_000, () => asleep.forEach((link) => link.gateway.bye(link, "no_pong")));
  }

  setClock() {
    const { world, device } = this;
    if (this.hasFlurries) return;
    const by = (world.chance(0.5) ? 1 : -1) * world.ms(1000, world.chance(0.5) ? 60_000 : 7_200_000);
    device.offset += by;
    // By a clock that jumps it may seem later than it is.
    for (const { leader } of device.tabs) if (leader) leader.notBefore = 0;
    world.note("the clock is set by", by);
  }

  cut() {
    const link = this.#link;
    if (!link) return;
    this.world.note("cut", link.gateway.name);
    link.cut();
  }

  breakOff() {
    const link = this.#link;
    if (!link) return;
    this.world.note("broken off", link.gateway.name);
    this.#end(link);
  }

  sendAway() {
    const link = this.#link;
    const why = this.world.pick(SENT_AWAY);
    if (!link) return;
    this.world.note(link.gateway.name, "closes", why);
    link.gateway.bye(link, why);
  }

  /** Mostly there is something else for the page to do than to stop for good. */
  stopForGood() {
    const link = this.#link;
    if (!link || !this.world.chance(0.2)) return;
    this.world.note(link.gateway.name, "closes for good");
    link.gateway.bye(link, "invalid_token");
  }

  regionDies() {
    const { world } = this;
    const region = world.pick(this.regions);
    const isSilent = world.chance(0.5);
    Object.assign(region, { isUp: isSilent, isSilent });
    world.note(region.name, isSilent ? "falls silent" : "dies");
    for (const link of [...this.device.links]) {
      if (link.gateway.region !== region) continue;
      if (isSilent) link.cut();
      else this.#end(link);
    }
  }

  regionHeals() {
    const region = this.world.pick(this.regions);
    Object.assign(region, { isUp: true, isSilent: false });
    this.world.note(region.name, "is well");
  }

  offline() {
    this.device.isOffline = true;
    this.world.note("offline");
    for (const link of [...this.device.links]) link.cut();
    this.#recheck();
  }

  online() {
    if (!this.device.isOffline) return;
    this.device.isOffline = false;
    this.world.note("online");
    this.#recheck();
  }

  /** Have a proxy on the way let requests through, and no sockets. */
  forbid() {
    const { device, world } = this;
    device.forbidsSockets = true;
    world.note("no sockets");
    for (const link of [...device.links]) this.#end(link);
  }

  permit() {
    this.device.forbidsSockets = false;
  }

  #end(link) {
    if (!link.gateway.readers.has(link)) return;
    link.gateway.bye(link);
    link.end(1006);
  }

  #recheck() {
    for (const tab of this.device.tabs) tab.task("event", () => tab.leader?.do((now) => tab.leader.session.recheck(now)));
  }

  /** A gateway's control plane begins anew, and can't answer everything yet. */
  restart() {
    const { world } = this;
    const gateway = world.pick(this.fabric.gateways);
    world.note(gateway.name, "starts");
    gateway.isStarting = true;
    world.after(world.ms(100, 6000), () => (gateway.isStarting = false));
  }

  /** A gateway that is in a hurry leaves bytes of the next second unread. */
  hurry() {
    const link = this.#link;
    if (this.hasFlurries || !link?.gateway.readers.has(link)) return;
    this.world.note(link.gateway.name, "is in a hurry");
    link.allowance = -this.world.int(15);
    link.refused = 0;
  }

  ask() {
    const { world, fabric } = this;
    const tab = this.#tab;
    const letters = fabric.entries.get(TOPICS.own).filter(({ type }) => type === "message");
    const isMark = letters.length && world.chance(0.7);
    const verb = isMark
      ? { action: world.pick(MARKS), topic: TOPICS.own, id: idOf(world.pick(letters)) }
      : { action: "history", topic: world.pick(FOLLOWED) };
    tab.task("event", () => tab.isOver || tab.ask(verb));
  }

  logIn() {
    const tab = this.#tab;
    tab.task("event", () => tab.isOver || tab.ask({ action: "login", token: this.device.newToken() }));
  }

  hide() {
    const tab = this.#tab;
    tab.hide(!tab.isHidden);
  }

  /** A tab that is seen has no answer from a leader whose thread is blocked. */
  steal() {
    const { world, device } = this;
    const leader = device.holder;
    const others = device.tabs.filter((tab) => tab !== leader && !tab.leader && !tab.isHidden);
    if (leader && leader.blockedUntil > world.now + 2000 && others.length) device.steal(world.pick(others));
  }

  revoke() {
    const link = this.#link;
    if (link?.user && this.world.chance(0.2)) link.gateway.bye(link, "invalid_token");
  }

  /** A list that is scrolled, or a router: topics are followed and left by the hundred, in one turn or in as many. */
  flurry() {
    const { world } = this;
    if (!this.hasFlurries) return;
    const tab = this.#tab;
    const isOneTurn = world.chance(0.5);
    const topics = Array.from({ length: world.ms(20, 200) }, () => world.pick(FOLLOWED));
    world.note(tab.id, "follows and leaves", topics.length, isOneTurn ? "at once" : "one by one");
    const pair = (topic) => tab.isOver || tab.subscriber.follow(topic, {}).unsubscribe();
    if (isOneTurn) tab.task("event", () => topics.forEach(pair));
    else topics.forEach((topic, n) => world.after(n, () => tab.task("event", () => pair(topic))));
  }

  /* ---- What must be so in the end ---- */

  async end() {
    const { world, device } = this;
    if (world.fault) return;
    this.#heal();
    const served = await world.run(SERVED_WITHIN_MS, () => this.#allServed());
    if (world.fault || this.#hasStopped) return;
    if (!served) return void world.broken(`not everything is served ${SERVED_WITHIN_MS / 1000} s after all is well`);
    await world.run(ANSWERED_WITHIN_MS, () => device.tabs.every(({ pending }) => pending === 0));
    for (const topic of new Set(FOLLOWED)) this.fabric.publish(topic);
    await this.#quiet();
    if (world.fault || this.#hasStopped) return;
    for (const tab of device.tabs) this.#check(tab);
    await this.#leaveAll();
  }

  /** Some seconds with the same connection and login: tokens run out at any time. */
  async #quiet() {
    const { world } = this;
    for (let n = 0; n < 5 && !world.fault; n += 1) {
      await world.run(SERVED_WITHIN_MS, () => this.#allServed());
      const reader = this.#reader;
      const user = reader?.user;
      await world.run(6000);
      if (reader && this.#reader === reader && reader.user === user) return;
    }
  }

  get #hasStopped() {
    return this.device.tabs.some(({ leader }) => leader?.session.state === "stopped");
  }

  #heal() {
    const { world, device, regions } = this;
    world.note("all is well");
    world.isHealed = true;
    device.isOffline = device.forbidsSockets = false;
    for (const region of regions) Object.assign(region, { isUp: true, isSilent: false });
    for (const gateway of this.fabric.gateways) gateway.isStarting = false;
    for (const tab of [...device.tabs]) {
      tab.blockedUntil = Math.min(tab.blockedUntil, world.now);
      tab.block(0);
      if (tab.isHidden) tab.hide(false);
    }
    if (!device.tabs.length) device.open().follow(TOPICS.public);
    this.#recheck();
  }

  get #reader() {
    const leader = this.device.holder?.leader;
    const link = leader?.link;
    return link?.isOpen && leader.session.state === "open" && link.gateway.readers.has(link) ? link : null;
  }

  /** True if the user may have the topic of this subscription. */
  #mayHave({ topic }, { user }) {
    return topic === TOPICS.public || (topic === TOPICS.own ? user === "42" : user !== null);
  }

  get #live() {
    return this.device.tabs.flatMap(({ subscriptions }) => subscriptions.filter((one) => !one.hasEnded));
  }

  #allServed() {
    const reader = this.#reader;
    return reader !== null && this.#live.every((one) => !this.#mayHave(one, reader) || (reader.topics.has(one.topic) && one.since !== null));
  }

  #check(tab) {
    const { world, fabric } = this;
    const reader = this.#reader;
    if (!reader) return void world.broken("the connection is lost although all is well");
    if (tab.pending) world.broken("what a page asked is never answered");
    for (const one of tab.subscriptions) {
      if (one.hasEnded || !this.#mayHave(one, reader)) continue;
      if (!reader.topics.has(one.topic)) return void world.broken("a subscription isn't at the gateway");
      const missing = fabric.entries.get(one.topic).filter(({ type, n }) => type === "message" && n >= one.since && !one.got.has(n));
      if (missing.length) world.note(tab.id, one.topic, "lacks", missing.map(({ n }) => n), "of", one.since);
      if (missing.length) world.broken("a message is missing, and no gap was reported");
    }
  }

  /** End all subscriptions, and check that nothing of them is left. */
  async #leaveAll() {
    const { world, device } = this;
    for (const one of this.#live) one.tab.unfollow(one);
    await world.run(5000);
    if (world.fault) return;
    if (this.#reader?.topics.size) return void world.broken("a topic that nobody follows stays subscribed");
    for (const tab of [...device.tabs]) tab.close();
    await world.run(60_000);
    if (device.links.size) world.broken("a closed page leaves a connection behind");
    if (this.fabric.gateways.some(({ readers }) => readers.size)) world.broken("a closed page leaves a reader behind");
  }
}


/** Plays the history of `seed` on this library; returns its world: `fault` is null where all invariants held. */
export function play(library, seed) {
  return new History(library, seed).play();
}
