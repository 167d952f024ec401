/**
 * One reader's connection: which gateway to try, when to give one up, what to say on each connection.
 *
 * It owns no socket, no clock, no timer and no randomness: callers pass `now` (ms since the epoch), call
 * `wake()` when `due()` has come, and carry out what it emits:
 *
 *   {do: "survey"}                         ask every region for its endpoints, then call surveyed()
 *   {do: "open", target, transport}        connect; then opened(), heard(), push() and closed()
 *   {do: "probe", target, ms}              does its SockJS answer within `ms`? then probed()
 *   {do: "send", verb}, {do: "hangup"}
 *   {do: "note", note}                     tell the tabs; their notes come in through note()
 *
 * What a reader of this would question: there is no table of subscriptions beside the one of topics. A tab that
 * comes late to a topic which another follows has it subscribed anew as it wishes, and then once more from where
 * it was. The gateway obeys verbs one after the other, so replies say which messages are the newcomer's alone.
 */

import { Backoff, TOKEN_EXPIRED, askedWait, waitAfterLoss } from "./closing.js";
import { Login } from "./login.js";
import { keyOf } from "./regions.js";
import { Requests } from "./requests.js";
import { Topics } from "./topics.js";

/**
 * @import { Regions } from "./regions.js"
 * @import { Answer, Ask, Candidate, Closing, Details, Effect, Handlers, Note, Push, Random, Refusal, State, Verb } from "./types"
 */

/**
 * state → event → next state. An event that a state doesn't list changes nothing.
 * @type {Record<State["state"], Record<string, State["state"]>>}
 */
export const STATES = {
  idle: { start: "finding", stop: "stopped" },
  finding: { found: "connecting", lost: "waiting", stop: "stopped" },
  connecting: { opened: "open", lost: "waiting", stop: "stopped" },
  open: { found: "connecting", lost: "waiting", stop: "stopped" },
  waiting: { retry: "finding", stop: "stopped" },
  stopped: { start: "finding" },
};

/**
 * The state after `event`; the same state if the table doesn't list it.
 * @param {State["state"]} state
 * @param {string} event
 */
export function nextState(state, event) {
  return STATES[state]?.[event] ?? state;
}

const DIAL = { least: 3000, most: 15_000 };
const BLOCKED_MS = 600_000; // so long WebSocket isn't tried again where something forbids it
const TOKEN_MS = 5000;
const GOODBYE_MS = 1000; // from a `disconnect` push to the close that proxies may have eaten
const HOME_MS = 300_000;
const MOST_SURVEYS = 3; // one that names the regions, two that compare them
const LOOKED_MS = 15_000;
const ASLEEP_MS = 45_000; // callers wake us each 30 s
const TOO_MANY = 111;

/**
 * How long a connection may be silent, in ms, before it is asked for a sign of life. Hidden pages can wait: longer than
 * the 25 s between a gateway's heartbeats, which can be seen over SockJS, so that nothing need be asked. A page that is
 * seen is to have news from another region within 8 s: silence, `SLACK.least` and a pause of up to 0.5 s take 6 of them.
 */
export const HEARTBEAT = { visible: 3000, hidden: 30_000 };
const SLACK = { least: 2500, most: 10_000 };

/** @typedef {"retry" | "dial" | "quiet" | "goodbye" | "token" | "refresh" | "home" | "again" | "requests"} Due */

export class Session {
  /** @type {Map<Due, number>} */
  #due = new Map(); // what → when
  /** Once one has been tried. */
  #target = /** @type {Candidate} */ (/** @type {unknown} */ (null));
  #transport = "";
  /** @type {Candidate[]} */
  #candidates = [];
  #openedAt = 0;
  #heardAt = 0;
  #pingedAt = 0; // 0 while no pong is awaited
  #rtt = 0;
  #spoken = false; // whether this connection has pushed anything
  #mute = 0; // WebSockets in a row that opened and never said a word
  #blockedUntil = 0;
  /** @type {Push | null} */
  #notice = null;
  #surveys = 0; // in a row
  #notBefore = 0; // when the gateway, or its region, lets us try again at the earliest
  #lastWake = 0;
  #hidden = false;
  #lookedAt = -Infinity; // when a tab that is seen last looked for its connection
  #login;
  #requests;
  #topics;

  /**
   * `random` returns a number in [0, 1); `transports` are the names that may be used, "websocket" and those of
   * sockjs-client; `emit` takes each effect.
   * @param {{regions: Regions, random: Random, emit: (effect: Effect) => void, transports: string[],
   *   heartbeat?: {visible: number, hidden: number}}} options
   */
  constructor({ regions, random, emit, transports, heartbeat = HEARTBEAT }) {
    this.regions = regions;
    this.random = random;
    this.emit = emit;
    this.transports = transports;
    this.heartbeat = heartbeat;
    /** @type {State["state"]} */
    this.state = "idle";
    /** @type {Details} */
    this.details = {};
    this.backoff = new Backoff();
    /** @param {Verb} verb */
    const send = (verb) => this.#send(verb);
    /** @param {Note} note */
    const tell = (note) => this.#tell(note);
    this.#login = new Login({ send, tell });
    this.#topics = new Topics({ send, tell });
    this.#requests = new Requests({ send, tell, isServed: (topic) => this.#topics.isServed(topic) });
  }

  /* ---- Time ---- */

  /** When to call `wake()`: at the latest; null while there is nothing to wait for. */
  due() {
    return this.#due.size ? Math.min(...this.#due.values()) : null;
  }

  /**
   * Do what is due. Also right after the device has woken up: it may have slept through anything.
   * @param {number} now
   */
  wake(now) {
    if (this.#lastWake > now) this.#shift(now - this.#lastWake);
    const slept = this.#lastWake && now - this.#lastWake > ASLEEP_MS;
    this.#lastWake = now;
    if (slept) this.rouse(now);
    for (const [what, at] of [...this.#due]) {
      if (at > now || this.#due.get(what) !== at) continue;
      this.#due.delete(what);
      this.#when[what](now);
    }
  }

  /**
   * The clock was set back: what was due in a second is so still.
   * @param {number} ms
   */
  #shift(ms) {
    for (const [what, at] of this.#due) this.#due.set(what, at + ms);
    this.#requests.shift(ms);
    this.#openedAt += ms;
    this.#heardAt += ms;
    this.#notBefore += ms;
  }

  /** @type {Record<Due, (now: number) => void>} */
  #when = {
    retry: () => this.#find("retry"),
    dial: (now) => this.#hangUpAnd(() => this.#failed(now)),
    quiet: (now) => this.#silent(now),
    goodbye: (now) => this.#hangUpAnd(() => this.#lost({ code: 1006 }, now)),
    token: () => this.#release(),
    refresh: () => this.#login.askForToken(),
    home: () => this.emit({ do: "survey" }),
    again: () => this.#again(),
    requests: (now) => {
      this.#requests.wake(now);
      this.#armRequests();
    },
  };

  /**
   * The page is seen, the network is back or the device is awake: don't wait, and don't trust the socket.
   * @param {number} now
   */
  rouse(now) {
    if (this.state === "open" && !this.#isDue("goodbye")) this.#ping(now);
    if (this.state === "waiting") this.#soon("retry", Math.max(this.#notBefore, now + this.random() * this.backoff.base));
  }

  /**
   * @param {boolean} hidden
   * @param {number} now
   */
  hide(hidden, now) {
    this.#hidden = hidden;
    if (!hidden) this.rouse(now);
  }

  /* ---- Finding a gateway ---- */

  /** @param {number} now */
  start(now) {
    this.#lastWake = now;
    this.#find("start");
  }

  /** @param {string} event */
  #find(event) {
    this.#move(event);
    this.#surveys = 1;
    this.emit({ do: "survey" });
  }

  /**
   * What the regions answered: [{url, ms, endpoints}…], endpoints null where there was none.
   * @param {Answer[]} answers
   * @param {number} now
   * @returns {void}
   */
  surveyed(answers, now) {
    const candidates = this.regions.candidates(answers, now, this.random);
    if (this.state === "open") return this.#surveyedForHome(candidates, now);
    if (this.state !== "finding") return undefined;
    if (this.regions.undecided && this.#surveys < MOST_SURVEYS) {
      this.#surveys += 1;
      return this.emit({ do: "survey" });
    }
    const named = answers.flatMap(({ endpoints }) => endpoints ?? []);
    this.details.alternates = named[0]?.alternates ?? this.details.alternates;
    if (candidates.length === 0) {
      // Nobody at all answers when the network is away: that is nobody's fault.
      const floor = Math.max(0, ...named.map(({ retryMs }) => retryMs));
      return this.#lost({ reason: named.length ? "no gateway" : "no answer", floor }, now);
    }
    return this.#tryAll(candidates, now);
  }

  /**
   * @param {Candidate[]} candidates
   * @param {number} now
   */
  #surveyedForHome(candidates, now) {
    if (candidates[0]?.url !== this.regions.home || this.#target.url === this.regions.home) {
      this.#armHome(now);
      return;
    }
    this.emit({ do: "hangup" });
    this.#forgetConnection();
    this.#tryAll(candidates, now);
  }

  /**
   * @param {Candidate[]} candidates
   * @param {number} now
   */
  #tryAll(candidates, now) {
    this.#candidates = candidates;
    this.#move("found", { region: candidates[0]?.region });
    this.#dial(now);
  }

  /** @param {number} now */
  #armHome(now) {
    if (this.#target.url !== this.regions.home) this.#due.set("home", now + HOME_MS * (0.5 + this.random()));
  }

  #forgetConnection() {
    this.#due.clear();
    this.#openedAt = this.#pingedAt = 0;
    this.#notice = null;
    this.#login.disconnected();
    this.#topics.disconnected();
    this.#requests.disconnected();
  }

  /**
   * @param {number} now
   * @returns {void}
   */
  #dial(now) {
    const next = this.#candidates.shift();
    if (!next) return this.#lost({ reason: "no gateway can be reached" }, now);
    this.#target = next;
    this.#transport = this.#bestTransport(now);
    if (!this.#transport) return this.#dial(now);
    return this.#open(now);
  }

  /** @param {number} now */
  #bestTransport(now) {
    const { websocket, sockjs } = this.#target.gateway;
    if (websocket && this.transports.includes("websocket") && now >= this.#blockedUntil) return "websocket";
    return sockjs && this.#mayFallBack() ? "sockjs" : "";
  }

  #mayFallBack() {
    return this.transports.some((name) => name !== "websocket");
  }

  /** @param {number} now */
  #open(now) {
    this.#notice = null;
    this.#spoken = false;
    // sockjs-client tries its transports one after the other, and may have to be loaded first.
    this.#due.set("dial", now + this.#dialMs() * (this.#transport === "websocket" ? 1 : 4));
    this.emit({ do: "open", target: this.#target, transport: this.#transport });
  }

  /* ---- What happens to the socket ---- */

  /**
   * @param {string} transport
   * @param {number} now
   */
  opened(transport, now) {
    this.#due.clear();
    this.#openedAt = now;
    const { region, gateway } = this.#target;
    this.#move("opened", { region, transport, gateway: keyOf(gateway) });
    this.heard(now);
    this.#armHome(now);
    this.#greet(now);
  }

  /**
   * Anything at all has come in.
   * @param {number} now
   */
  heard(now) {
    if (this.#pingedAt) this.#rtt = this.#rtt ? (this.#rtt + now - this.#pingedAt) / 2 : now - this.#pingedAt;
    this.#pingedAt = 0;
    this.#heardAt = now;
    this.#due.set("quiet", now + this.#interval(now));
  }

  /** @param {Due} what */
  #isDue(what) {
    return this.#due.has(what);
  }

  /** @param {number} now */
  #interval(now) {
    const isSeen = !this.#hidden || now - this.#lookedAt < LOOKED_MS;
    return isSeen ? this.heartbeat.visible : this.heartbeat.hidden;
  }

  /** @param {number} now */
  #silent(now) {
    if (!this.#pingedAt) this.#ping(now);
    else this.#hangUpAnd(() => this.#lost({ code: 1006, reason: "no sign of life" }, now));
  }

  /** @param {number} now */
  #ping(now) {
    this.#pingedAt = now;
    this.#send({ action: "ping" });
    // Until there was an answer, endpoints.json says what a request takes here: over SockJS a ping may be one.
    const slack = this.#interval(now) === this.heartbeat.hidden ? SLACK.most : 4 * (this.#rtt || this.#target.ms);
    this.#due.set("quiet", now + Math.min(SLACK.most, Math.max(SLACK.least, slack)));
  }

  /**
   * The socket is closed, or never opened.
   * @param {Closing} how
   * @param {number} now
   */
  closed({ code = 1006, reason = "" }, now) {
    if (this.state === "connecting") this.#refused(now);
    else if (this.state === "open") this.#lost({ code, reason }, now);
  }

  /**
   * @param {number} now
   * @returns {void}
   */
  #refused(now) {
    if (this.#transport !== "websocket" || !this.#target.gateway.sockjs || !this.#mayFallBack()) return this.#failed(now);
    // Its answer comes in any case, and must not be taken for that of the next one.
    this.#due.delete("dial");
    return this.emit({ do: "probe", target: this.#target, ms: this.#dialMs() });
  }

  /** Opening takes some round trips: where endpoints.json alone took long, all do. */
  #dialMs() {
    return Math.min(DIAL.most, Math.max(DIAL.least, 8 * this.#target.ms));
  }

  /**
   * `alive`: the gateway answers over HTTP, so that something between here and there forbids WebSocket.
   * @param {boolean} alive
   * @param {number} now
   */
  probed(alive, now) {
    if (this.state !== "connecting") return;
    if (!alive) return void this.#failed(now);
    this.#blockedUntil = now + BLOCKED_MS;
    this.#transport = "sockjs";
    this.#open(now);
  }

  /** @param {number} now */
  #failed(now) {
    this.#due.delete("dial");
    this.regions.failed(this.#target, now);
    this.#dial(now);
  }

  /** @param {() => void} next */
  #hangUpAnd(next) {
    this.emit({ do: "hangup" });
    next();
  }

  /**
   * The attempt or the connection is over: wait as the gateway asked, or stop.
   * @param {Closing & {floor?: number}} how
   * @param {number} now
   * @returns {void}
   */
  #lost({ code = 1006, reason = "", floor = 0 }, now) {
    const openFor = this.#openedAt ? now - this.#openedAt : 0;
    if (this.state === "open") this.#judge(openFor, now);
    const notice = this.#notice;
    this.#forgetConnection();
    if ((notice?.code ?? code) === TOKEN_EXPIRED) this.#login.expired();
    const wait = waitAfterLoss({ code, notice, openFor }, this.backoff, this.random());
    const why = { reason: notice?.reason || reason };
    if (wait === null) return this.#move("stop", { ...why, code: notice?.code ?? code });
    const pause = Math.max(wait, floor);
    this.#notBefore = now + Math.max(askedWait(notice), floor);
    this.#due.set("retry", now + pause);
    return this.#move("lost", { ...why, wait: pause });
  }

  /**
   * What the lost connection says about its gateway and about WebSocket here.
   * @param {number} openFor
   * @param {number} now
   */
  #judge(openFor, now) {
    this.regions.failed(this.#target, now);
    const isMute = this.#transport === "websocket" && !this.#spoken && !this.#notice && openFor < 10_000;
    this.#mute = isMute ? this.#mute + 1 : 0;
    if (this.#mute >= 2 && this.#mayFallBack()) this.#blockedUntil = now + BLOCKED_MS;
  }

  /**
   * @param {string} event
   * @param {Details} [details]
   */
  #move(event, details = {}) {
    this.state = nextState(this.state, event);
    this.details = { region: this.details.region, alternates: this.details.alternates, ...details };
    this.#tell(this.stateNote());
  }

  /**
   * The note that tells a tab how things are.
   * @returns {Note}
   */
  stateNote() {
    const { user = null } = this.#login.user ?? {};
    return { t: "state", state: this.state, details: { ...this.details, user } };
  }

  /* ---- What is pushed ---- */

  /**
   * A push has come in, as an object.
   * @param {Push} push
   * @param {number} now
   */
  push(push, now) {
    this.#spoken = true;
    if (push.type === "disconnect") {
      this.#notice = push;
      this.#due.set("goodbye", now + GOODBYE_MS);
      return;
    }
    this.#requests.pushed(push);
    if (this.#topics.push(push)) {
      // A refusal may be mended by a login, and one that is temporary by time.
      if (push.type === "error") this.#later(push.temporary, now);
      return;
    }
    const outcome = this.#login.reply(push);
    if (outcome === "in") this.#loggedIn(push, now);
    else if (outcome === "refused") this.#later(push.temporary, now);
    else this.#answer(push, now);
  }

  /**
   * @param {boolean} isNeeded
   * @param {number} now
   */
  #later(isNeeded, now) {
    if (isNeeded) this.#soon("again", now + 1000 + this.random() * 4000);
  }

  #armRequests() {
    const due = this.#requests.due();
    if (due < Infinity) this.#soon("requests", due);
  }

  /**
   * @param {Due} what
   * @param {number} at
   */
  #soon(what, at) {
    this.#due.set(what, Math.min(at, this.#due.get(what) ?? Infinity));
  }

  /**
   * @param {Push} push
   * @param {number} now
   */
  #answer(push, now) {
    const isAnswer = this.#requests.reply(push, now);
    this.#armRequests();
    if (isAnswer) return;
    if (push.type !== "error") return;
    this.#later(push.temporary, now);
    if (push.code === TOO_MANY) {
      this.#requests.unread(now + 1000 + 4000 * this.random());
      this.#armRequests();
    }
    this.#tell({ t: "error", error: /** @type {any} */ (push) });
  }

  /* ---- First words ---- */

  /**
   * On a new connection: who we are, then what we follow, then what is still to be asked.
   * @param {number} now
   */
  #greet(now) {
    if (this.#login.lacksToken) {
      this.#login.askForToken();
      this.#due.set("token", now + TOKEN_MS);
    } else {
      this.#login.say();
      this.#release();
    }
  }

  #release() {
    this.#due.delete("token");
    this.#topics.connected();
    this.#requests.connected();
  }

  /** Say again what was refused for the moment, or may not have been read; who we are comes first. */
  #again() {
    this.#login.again();
    this.#topics.again();
  }

  /**
   * A tab brings a token, or none.
   * @param {unknown} token
   */
  #gotToken(token) {
    const isNew = this.#login.bring(token);
    if (this.state !== "open") return;
    if (isNew) this.#login.say();
    if (this.#isDue("token")) this.#release();
  }

  /**
   * @param {Push} push
   * @param {number} now
   */
  #loggedIn({ expires_at: expiresAt }, now) {
    if (Number.isFinite(expiresAt)) {
      this.#due.set("refresh", now + Math.max(1000, (expiresAt - now) * (0.7 + 0.2 * this.random())));
    }
    this.#tell(this.stateNote());
    this.#topics.loggedIn();
  }

  /* ---- The tabs' notes ---- */

  /**
   * A tab says something; see desk.js for what there is.
   * @param {Ask} note
   * @param {number} now
   */
  note(note, now) {
    /** @type {((note: any, now: number) => void) | undefined} */ (this.#notes[note.t])?.(note, now);
  }

  /** @type {Handlers<Ask, [now: number]>} */
  #notes = {
    hello: (note, now) => {
      if (note.token && this.#login.want() && this.state === "open") this.#greet(now);
      for (const wish of note.wishes) this.#topics.follow(wish, this.#isReady());
      this.#tell(this.stateNote());
    },
    follow: (note) => this.#topics.follow(note.wish, this.#isReady()),
    leave: (note) => this.#topics.leave(note.key, this.#isReady()),
    ask: (note, now) => this.#ask(note, now),
    token: (note) => this.#gotToken(note.token),
    look: (note, now) => this.#looked(now),
    bye: (note) => this.#topics.leaveAll(note.desk, this.#isReady()),
  };

  /**
   * Another tab, that is seen, wants to be sure of its connection; it can, as its timers aren't slowed down.
   * @param {number} now
   */
  #looked(now) {
    this.#lookedAt = now;
    if (this.state === "open" && !this.#pingedAt) this.#soon("quiet", this.#heardAt + this.#interval(now));
  }

  #isReady() {
    return this.state === "open" && !this.#isDue("token");
  }

  /**
   * @param {{key: string, verb: Verb}} note
   * @param {number} now
   */
  #ask({ key, verb }, now) {
    if (verb.action === "login" || verb.action === "refresh") return this.#askLogin(key, verb, now);
    return this.#requests.ask(key, verb, this.#isReady());
  }

  /**
   * @param {string} key
   * @param {Verb} verb
   * @param {number} now
   */
  #askLogin(key, { token }, now) {
    this.#login.ask(key, token);
    if (this.state === "stopped") this.start(now);
    if (this.state === "open") this.#login.say();
    if (this.#isDue("token")) this.#release();
  }

  /** @param {Verb} verb */
  #send(verb) {
    this.emit({ do: "send", verb });
  }

  /** @param {Note} note */
  #tell(note) {
    this.emit({ do: "note", note });
  }
}
