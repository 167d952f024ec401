/**
 * The connection of a tab. The sockets and timers (connection.ts, transport.ts) are simulated here;
 * the decisions (session.ts and all below) are the library's own.
 */

import { CLOSES } from "./gateway.mjs";

const WAKE_MS = 30_000;
const ANSWER_MS = 4000;
/** From one tab to another. */
export const CHANNEL_MS = 2;
const STOPS = new Set(Object.values(CLOSES).filter(({ reconnect }) => !reconnect));
/** The most that a page may ask of regions in a minute. */
const MOST_DISCOVERIES = 25;

/** A connection, or the attempt at one. Nobody learns of bytes lost in a cut. */
export class SimulatedLink {
  constructor(leader, gateway, transport) {
    const { world, device } = leader;
    Object.assign(this, { leader, world, gateway, transport, number: (device.linksMade += 1) });
    this.latency = gateway.region.latency;
    this.isOpen = this.isCut = this.isEnded = false;
    this.wasHealthy = true;
    this.upAt = this.downAt = 0;
    this.hasAsked = false; // for a token
    device.links.add(this);
    const { isUp, isSilent } = gateway.region;
    if (isSilent || device.isOffline) return this.cut();
    if (!isUp || device.forbidsSockets || (transport === "websocket" && device.forbidsWebSocket)) return this.#fail();
    this.#down(() => this.#opened());
    return undefined;
  }

  #fail() {
    this.wasHealthy = false;
    this.#down(() => this.#closed(1006));
  }

  #opened() {
    this.isOpen = true;
    this.leader.do((now) => this.leader.session.opened(this.transport === "websocket" ? "websocket" : "xhr-streaming", now));
    if (this.transport !== "websocket") this.#beat();
  }

  /** Over SockJS a page sees the gateway's heartbeats. */
  #beat() {
    this.world.after(25_000, () => {
      if (this.isEnded || !this.gateway.readers.has(this)) return;
      this.#down(() => this.leader.do((now) => this.leader.session.heard(now)));
      this.#beat();
    });
  }

  /** Send an event to the page, behind those that are on their way. */
  #down(happen) {
    if (!this.isOpen && !this.downAt && !this.isCut && this.wasHealthy) this.gateway.welcome(this);
    this.downAt = Math.max(this.downAt, this.world.now + this.latency + this.world.ms(0, 30));
    this.world.after(this.downAt - this.world.now, () => {
      if (!this.isCut) this.leader.tab.task("socket", () => this.isEnded || happen());
    });
  }

  deliver(push) {
    this.#down(() => {
      if (push.type === "disconnect") this.#onDisconnect(push);
      this.leader.do((now) => {
        this.leader.session.heard(now);
        this.leader.session.push(push, now);
      });
    });
  }

  #onDisconnect(close) {
    this.wasHealthy = false;
    this.leader.askedMs = close.retry_after_ms;
    if (!STOPS.has(close)) return;
    this.leader.mayStop = true;
    // Without the login that isn't taken any more it may come back.
    this.leader.mustStop = !(this.hasSentToken && close === CLOSES.invalid_token);
  }

  /** The gateway closes. */
  end(code) {
    this.#down(() => this.#closed(code));
  }

  #closed(code) {
    this.isEnded = true;
    this.wasHealthy = false;
    this.leave();
    if (this.leader.link === this) this.leader.link = null;
    this.leader.do((now) => this.leader.session.closed({ code }, now));
  }

  send(verb) {
    if (!this.isOpen || this.isEnded) return this.world.broken("a verb is sent without a connection");
    this.upAt = Math.max(this.upAt, this.world.now + this.latency);
    return this.world.after(this.upAt - this.world.now, () => {
      if (!this.isCut && this.gateway.readers.has(this)) this.gateway.received(this, verb);
    });
  }

  /** Let nothing pass any more, without an end for either side. */
  cut() {
    this.isCut = true;
    this.wasHealthy = false;
    this.gateway.bye(this);
  }

  /** The page has done with it. */
  leave() {
    this.isEnded = true;
    this.gateway.bye(this);
    this.leader.device.links.delete(this);
  }
}

/** The connection of a tab: carries out the effects of its session. */
export class Leader {
  constructor(tab, library) {
    const { world, device } = tab;
    Object.assign(this, { tab, world, device, link: null, timer: 0, discoveries: [], mayStop: false, mustStop: false, isComparing: false, askedMs: 0, notBefore: 0 });
    const emit = (effect) => this.#carryOut(effect);
    const { Session, KnownRegions } = library;
    const urls = device.regions.map(({ url }) => url);
    this.session = new Session({ regions: new KnownRegions(urls), random: world.random, emit, transports: ["websocket", "xhr-streaming"] });
    tab.leader = this;
    this.do((now) => this.session.start(now));
    this.do((now) => this.session.hide(tab.isHidden, now));
  }

  do(step) {
    if (this.tab.leader !== this) return;
    const now = this.device.now();
    this.session.wake(now);
    step(now);
    this.#setTimer(now);
    if (this.isTurning) return;
    this.isTurning = this.world.isSettling = true;
    queueMicrotask(() => this.#turned());
  }

  /** The results of this turn of the thread are sent at its end. */
  #turned() {
    this.isTurning = false;
    if (this.tab.leader !== this) return;
    const now = this.device.now();
    this.session.turned(now);
    this.#setTimer(now);
  }

  #setTimer(now) {
    const due = this.session.due();
    if (this.session.state === "stopped" && due !== null) this.world.broken("a session that has stopped waits for something");
    this.#wakeIn(due === null ? WAKE_MS : Math.min(WAKE_MS, Math.max(0, due - now)));
  }

  /** A tab says something. */
  note(note) {
    // A login begins anew.
    if (note.t === "ask" && note.verb.action === "login") this.mustStop = false;
    if (note.t === "token") this.#isBrought(note.token);
    // The token is sent at the end of this turn of the thread, and may be just on its way when the gateway closes.
    if (this.link && (note.token || note.login || note.verb?.token)) this.link.hasSentToken = true;
    this.do((now) => this.session.note(note, now));
  }

  /** Browsers have timers of hidden pages wait for the next second, and after five minutes for the next minute. */
  #wakeIn(ms) {
    const { tab, world } = this;
    const timer = (this.timer += 1);
    let wait = ms + world.int(5);
    if (tab.isHidden) {
      const step = world.now - tab.hiddenAt > 300_000 ? 60_000 : 1000;
      wait = Math.ceil((world.now + wait) / step) * step - world.now;
    }
    world.after(wait, () => tab.task("timer", () => timer === this.timer && this.do(() => {})));
  }

  #carryOut(effect) {
    const { world, device } = this;
    if (effect.do === "send") this.#send(effect.verb);
    else if (effect.do === "hangup") this.#hangUp();
    else if (effect.do === "discover") this.#discover();
    else if (effect.do === "open") this.#open(effect);
    else if (effect.do === "probe") {
      const gateway = device.gatewayOf(effect.target);
      const answers = gateway.region.isUp && !gateway.region.isSilent && !device.isOffline && !device.forbidsSockets;
      world.after(answers ? 2 * gateway.region.latency : effect.ms, () => this.tab.task("promise", () => this.do((now) => this.session.probed(answers, now))));
    } else this.#notify(effect.note);
  }

  #open({ target, transport }) {
    if (this.link) this.world.broken("a second socket is opened beside the first");
    if (this.mustStop) this.world.broken("the page comes back although it was sent away for good");
    if (this.world.now < this.notBefore) this.world.broken("the page comes back before the gateway allows it");
    this.askedMs = 0;
    this.link = new SimulatedLink(this, this.device.gatewayOf(target), transport);
    this.world.note(this.tab.id, "opens", this.link.gateway.name, transport);
  }

  #send(verb) {
    // The socket may have closed; events that were due before come first.
    if (!this.link) return undefined;
    if (verb.token !== undefined) {
      this.#says(verb.token);
      this.link.hasSentToken = true;
    }
    this.world.note(this.tab.id, "says", verb.action, verb.topic ?? verb.token ?? "");
    return this.link.send(verb);
  }

  /** A function's token comes while the connection that asked for it is there, as the answer to its last question. */
  #isBrought(token) {
    const made = this.device.tokens.get(token);
    if (made && made.question === this.link?.question) made.isInTime = true;
  }

  #says(token) {
    const made = this.device.tokens.get(token);
    if (made && !made.isInTime) this.world.broken("a token is sent that was asked for by an earlier question");
  }

  #hangUp() {
    const { link } = this;
    if (!link) return;
    // To go home it leaves a healthy one of its own will.
    if (link.wasHealthy && !this.isComparing) this.world.broken("a healthy connection is given up");
    this.#drop();
  }

  #drop() {
    const { link } = this;
    this.link = null;
    link?.leave();
  }

  end() {
    this.#drop();
  }

  #discover() {
    const { world, device } = this;
    this.discoveries = [...this.discoveries.filter((at) => world.now - at < 60_000), world.now];
    if (this.discoveries.length > MOST_DISCOVERIES) world.broken(`the regions are asked more than ${MOST_DISCOVERIES} times in a minute`);
    const answers = device.regions.map((region) => {
      const answersNow = region.isUp && !region.isSilent && !device.isOffline;
      const gateways = region.gateways.map(({ name }) => ({ websocket: `ws://${name}/websocket`, sockjs: `http://${name}/sockjs`, weight: 1 }));
      const ms = 2 * region.latency + world.ms(0, 20);
      return { url: region.url, ms: answersNow ? ms : Infinity, endpoints: answersNow ? { region: region.name, gateways, alternates: [], retryMs: 0 } : null };
    });
    const times = answers.map(({ ms }) => ms);
    const first = Math.min(...times);
    const ms = first === Infinity ? ANSWER_MS : Math.min(first + 1000, Math.max(...times));
    world.after(ms, () =>
      this.tab.task("promise", () => {
        this.isComparing = this.session.state === "open";
        this.do((now) => this.session.discovered(answers, now));
        this.isComparing = false;
      }),
    );
  }

  #notify(note) {
    const { tab, device, world } = this;
    if (note.t === "state") this.#stateIs(note);
    const question = note.t === "token?" ? {} : null;
    if (question && this.link) this.link.question = question;
    tab.soon(() => tab.hear(note, question));
    for (const other of device.tabs) if (other !== tab) world.after(CHANNEL_MS, () => other.task("channel", () => other.leader || other.hear(note, question)));
  }

  #stateIs({ state, details }) {
    const { world } = this;
    if (this.session.state === "waiting" && this.last !== "waiting") {
      const asked = this.askedMs;
      this.askedMs = 0;
      this.notBefore = Math.max(this.notBefore, world.now + asked - 5);
      if (details.wait > 30_000 + asked) world.broken("the page waits longer than half a minute");
    }
    if (state === "stopped" && !this.mayStop) world.broken("the page stops without a reason from the gateway");
    if (state !== "open" && this.last === "open") this.mayStop = state === "stopped";
    if (state === "waiting" || state === "stopped") this.#drop();
    if (this.last !== state) world.note(this.tab.id, "is", state, details.reason ?? "", details.wait ?? "");
    this.last = state;
  }
}
