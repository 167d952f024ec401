/**
 * A tab: a thread, a subscriber of the library's, and a page whose handlers act like those of pages. The locks
 * and channels of the library (tabs.ts) are simulated here.
 */

import { CHANNEL_MS, Leader } from "./leader.mjs";

const LOOK_MS = 5000;
/** The number of times that a page's thread is blocked again before it has read the waiting events, in visible and in hidden pages. */
const BLOCKS_IN_A_ROW = { seen: 3, hidden: 1 };

export class Tab {
  constructor(device, id) {
    Object.assign(this, { device, world: device.world, id, leader: null, isHidden: false, isOver: false, waiting: [], blockedUntil: 0, blocks: 0, microtasks: [], subscriptions: [], pending: 0 });
    const { world } = this;
    this.takesTokens = world.chance(0.7);
    const token = world.chance(0.3) ? device.newToken() : () => this.makeToken();
    const { Subscriber } = device.sources;
    this.subscriber = new Subscriber({ id, token: this.takesTokens ? token : null, say: (note) => this.say(note), notify: (event) => this.onEvent(event) });
    device.tabs.push(this);
    if (!device.holder) this.lead();
    else this.subscriber.hello();
    this.look();
  }

  /* ---- Its thread ---- */

  /** Run an event of the page when its thread is free. */
  task(source, happen) {
    if (this.isOver) return;
    if (this.world.now < this.blockedUntil || this.waiting.length) this.waiting.push({ source, happen });
    else this.run(happen);
  }

  run(happen) {
    happen();
    for (let next = this.microtasks.shift(); next; next = this.microtasks.shift()) next();
  }

  soon(happen) {
    this.microtasks.push(happen);
  }

  block(ms) {
    if (ms && this.blocks >= this.#mostBlocks) return;
    if (ms) this.blocks += 1;
    this.blockedUntil = Math.max(this.blockedUntil, this.world.now + ms);
    this.world.note(this.id, "is blocked for", ms);
    this.world.after(this.blockedUntil - this.world.now, () => this.#unblocked());
  }

  get #mostBlocks() {
    return this.isHidden ? BLOCKS_IN_A_ROW.hidden : BLOCKS_IN_A_ROW.seen;
  }

  /** Run the waiting events in any order, but in turn for each source; the next script may come before all of them. */
  #unblocked() {
    while (this.waiting.length && !this.isOver) {
      if (this.world.now < this.blockedUntil) return;
      const { source } = this.world.chance(0.3) ? (this.waiting.find((one) => one.source === "timer") ?? this.waiting[0]) : this.world.pick(this.waiting);
      const at = this.waiting.findIndex((one) => one.source === source);
      const [{ happen }] = this.waiting.splice(at, 1);
      this.run(happen);
      if (!this.world.isHealed && this.world.chance(0.05)) this.block(this.world.ms(100, 20_000));
    }
    if (this.world.now >= this.blockedUntil) this.blocks = 0;
  }

  /* ---- Which tab leads ---- */

  lead() {
    this.device.holder = this;
    new Leader(this, this.device.sources);
    this.subscriber.hello();
    for (const other of this.device.tabs) if (other !== this) this.world.after(CHANNEL_MS, () => other.task("channel", () => other.leader || other.led()));
  }

  led() {
    this.subscriber.hello();
  }

  /** Another tab took it for dead. */
  lostLead() {
    if (!this.leader) return;
    this.leader.end();
    this.leader = null;
    this.subscriber.hello();
  }

  /** A tab that is seen asks now and then whether the leader is alive, and replaces one that isn't. */
  look() {
    this.world.after(LOOK_MS, () => {
      if (this.isOver) return;
      this.task("timer", () => this.isHidden || this.leader || this.say({ t: "look" }));
      this.look();
    });
  }

  say(note) {
    const { device, world } = this;
    if (this.leader) return this.leader.note(note);
    for (const other of device.tabs) if (other !== this) world.after(CHANNEL_MS, () => other.task("channel", () => other.leader?.note(note)));
    return undefined;
  }

  /* ---- What the page does, and hears ---- */

  hear(note, question) {
    if (this.isOver) return;
    this.question = question;
    this.world.isSettling = true;
    this.subscriber.note(note);
    this.question = null;
  }

  onEvent(event) {
    if (this.isOver) this.world.broken(`a closed page gets the event: ${event}`);
  }

  /** Promises come late or never, or throw. */
  makeToken() {
    const { world, question, device } = this;
    const make = () => device.newToken(question);
    if (world.isHealed) return make();
    if (world.chance(0.1)) throw new Error("no session");
    if (world.chance(0.1)) return world.chance(0.5) ? new Promise(() => {}) : Promise.reject(new Error("no session"));
    if (world.chance(0.3)) return make();
    return new Promise((resolve) => {
      world.after(world.ms(1, 15_000), () =>
        this.task("promise", () => {
          world.isSettling = true;
          resolve(make());
        }),
      );
    });
  }

  follow(topic) {
    const { world } = this;
    const rewind = world.chance(0.4) ? world.ms(1, 5) : null;
    const one = { tab: this, topic, rewind, got: new Set(), marks: new Set(), since: null, hasEnded: false, order: -1, link: 0 };
    const live = (what) => one.hasEnded && world.broken(`${what} is called after its end`);
    one.handle = this.subscriber.follow(topic, {
      rewind,
      onMessage: ({ body }) => {
        live("onMessage");
        if (one.got.has(body.n)) world.broken("a message comes twice");
        one.got.add(body.n);
        if (body.isLive) {
          if (one.link === body.reader && body.order < one.order) world.broken("messages come in another order than that of the gateway");
          Object.assign(one, { link: body.reader, order: body.order });
        }
        this.whim(one);
      },
      onMark: ({ id, mark }) => {
        live("onMark");
        if (one.marks.has(id + mark)) world.broken("a mark comes twice");
        one.marks.add(id + mark);
        this.whim(one);
      },
      onSubscribed: () => {
        live("onSubscribed");
        one.since ??= this.device.fabric.entries.get(topic).length;
        this.whim(one);
      },
      onGap: () => {
        live("onGap");
        one.since = this.device.fabric.entries.get(topic).length;
      },
      onError: () => live("onError"),
    });
    this.subscriptions.push(one);
    world.note(this.id, "follows", topic, rewind ?? "");
    return one;
  }

  unfollow(one) {
    one.hasEnded = true;
    one.handle.unsubscribe();
    this.world.note(this.id, "follows no longer", one.topic);
  }

  /** Handlers end each other, and the page, and begin others. */
  whim(one) {
    const { world } = this;
    if (world.isHealed || !world.chance(0.03)) return;
    const others = this.subscriptions.filter((other) => other !== one && !other.hasEnded);
    const dice = world.random();
    if (dice < 0.6 && others.length) this.unfollow(world.pick(others));
    else if (dice < 0.75) this.close();
    else this.follow(one.topic);
  }

  /** Send a verb, and await the answer. */
  ask(verb) {
    const { world } = this;
    this.pending += 1;
    world.note(this.id, "asks", verb.action);
    world.isSettling = true;
    const settled = () => (this.pending -= 1);
    this.subscriber.ask(verb).then(settled, settled);
  }

  close() {
    if (this.isOver) return;
    this.world.note(this.id, "closes");
    for (const one of this.subscriptions) one.hasEnded = true;
    this.world.isSettling = true;
    this.leave();
    this.subscriber.close();
    this.device.gone(this);
  }

  /** Without a word. */
  crash() {
    this.world.note(this.id, "is gone");
    const { id } = this;
    this.leave();
    for (const other of this.device.tabs) this.world.after(20, () => other.task("lock", () => other.leader?.note({ t: "bye", tab: id })));
    this.device.gone(this);
  }

  leave() {
    if (!this.leader) this.say({ t: "bye", tab: this.id });
    this.isOver = true;
    this.leader?.end();
    this.leader = null;
    this.waiting = [];
    this.device.tabs.splice(this.device.tabs.indexOf(this), 1);
  }

  hide(isHidden) {
    this.isHidden = isHidden;
    this.hiddenAt = this.world.now;
    this.world.note(this.id, isHidden ? "is hidden" : "is seen");
    this.task("event", () => this.leader?.do((now) => this.leader.session.hide(isHidden, now)));
  }
}
