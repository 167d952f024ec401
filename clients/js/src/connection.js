/** Carries out what a session asks for: sockets, lookups, one timer. Thin: what to do is decided in session.js. */

import { Regions } from "./regions.js";
import { Session } from "./session.js";
import { survey } from "./survey.js";
import { loadSockJS, openSockJS, openWebSocket, probe } from "./transport.js";

/**
 * @import { ConnectOptions } from "../newsfabric"
 * @import { Ask, Candidate, Effect, Memory, Note, Push, Socket } from "./types"
 */

const WAKE_MS = 30_000;

export class Connection {
  /** @type {Socket | null} */
  #socket = null;
  #timer = 0;
  #isOver = false;

  /**
   * `tell` takes the notes for the tabs; the rest are the options of connect().
   * @param {{endpoints: string[], transports: string[], heartbeat: {visible: number, hidden: number},
   *   sockjs: ConnectOptions["sockjs"], tell: (note: Note) => void}} options
   */
  constructor({ endpoints, transports, heartbeat, sockjs, tell }) {
    this.transports = transports;
    this.sockjs = sockjs;
    this.tell = tell;
    this.memory = `newsfabric.regions ${endpoints[0]}`;
    this.regions = new Regions(endpoints, recall(this.memory));
    /** @param {Effect} effect */
    const emit = (effect) => /** @type {(effect: any) => void} */ (this.#effects[effect.do])(effect);
    this.session = new Session({ regions: this.regions, random: Math.random, emit, transports, heartbeat });
    this.#do((now) => this.session.start(now));
  }

  /**
   * A tab's note.
   * @param {Ask} note
   */
  note(note) {
    this.#do((now) => this.session.note(note, now));
  }

  rouse() {
    this.#do((now) => this.session.rouse(now));
  }

  /** @param {boolean} hidden */
  hide(hidden) {
    this.#do((now) => this.session.hide(hidden, now));
  }

  /** End it without a word: tabs that still want one have another by now. */
  close() {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
    this.#socket = null;
  }

  /**
   * Every event of the world goes through here: time has passed, and afterwards the timer is set anew.
   * @param {(now: number) => void} step
   */
  #do(step) {
    if (this.#isOver) return;
    const now = Date.now();
    this.session.wake(now);
    step(now);
    clearTimeout(this.#timer);
    const due = this.session.due();
    const wait = due === null ? WAKE_MS : Math.min(WAKE_MS, Math.max(0, due - now));
    this.#timer = setTimeout(() => this.#do(() => {}), wait);
  }

  /** @type {{[D in Effect["do"]]: (effect: Extract<Effect, {do: D}>) => unknown}} */
  #effects = {
    survey: async () => {
      const answers = await survey(this.regions, Date.now());
      this.#do((now) => this.session.surveyed(answers, now));
      const memory = this.regions.memory(answers);
      if (memory) remember(this.memory, memory);
    },
    open: ({ target, transport }) => this.#open(target.gateway, transport),
    probe: async ({ target, ms }) => {
      const alive = await probe(target.gateway, ms);
      this.#do((now) => this.session.probed(alive, now));
    },
    send: ({ verb }) => this.#socket?.send(JSON.stringify(verb)),
    hangup: () => {
      this.#socket?.close();
      this.#socket = null;
    },
    note: ({ note }) => this.tell(note),
  };

  /**
   * @param {Candidate["gateway"]} gateway
   * @param {string} transport
   */
  #open(gateway, transport) {
    /** @type {import("./types").SocketEvents} */
    const on = {
      opened: (name) => this.#do((now) => this.session.opened(name, now)),
      heard: () => this.#do((now) => this.session.heard(now)),
      text: (text) => this.#heard(text),
      closed: (event) => {
        this.#socket = null;
        this.#do((now) => this.session.closed(event, now));
      },
    };
    try {
      const transports = this.transports.filter((name) => name !== "websocket");
      /** @param {string} url */
      const load = (url) => loadSockJS(this.sockjs, url);
      this.#socket = transport === "websocket" ? openWebSocket(gateway, on) : openSockJS(gateway, on, { load, transports });
    } catch {
      // No such API, or a URL that this page may not open. Not now: the session is still opening.
      queueMicrotask(() => on.closed({ code: 1006 }));
    }
  }

  /** @param {string} text */
  #heard(text) {
    const push = parsePush(text);
    this.#do((now) => {
      this.session.heard(now);
      if (push) this.session.push(push, now);
    });
  }
}

/**
 * A push of the gateway as an object with a string `type`, or null.
 * @param {string} text
 * @returns {Push | null}
 */
export function parsePush(text) {
  try {
    const push = JSON.parse(text);
    return typeof push?.type === "string" ? push : null;
  } catch {
    return null;
  }
}

// Storage may be denied (private windows): then each page measures for itself.
/**
 * @param {string} key
 * @returns {Memory | null}
 */
function recall(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

/**
 * @param {string} key
 * @param {Memory} memory
 */
function remember(key, memory) {
  try {
    localStorage.setItem(key, JSON.stringify(memory));
  } catch {
    // Nothing is lost but time.
  }
}
