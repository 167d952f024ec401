/** Carries out what a session asks for: sockets, lookups, one timer. Thin: what to do is decided in session.js. */

import { Regions } from "./regions.js";
import { Session } from "./session.js";
import { survey } from "./survey.js";
import { loadSockJS, openSockJS, openWebSocket, probe } from "./transport.js";

const WAKE_MS = 30_000;

export class Connection {
  #socket = null;
  #timer = null;
  #isOver = false;

  /** `tell` takes the notes for the tabs; the rest are the options of connect(). */
  constructor({ endpoints, transports, heartbeat, sockjs, tell }) {
    this.transports = transports;
    this.sockjs = sockjs;
    this.tell = tell;
    this.memory = `newsfabric.regions ${endpoints[0]}`;
    this.regions = new Regions(endpoints, recall(this.memory));
    const emit = (effect) => this.#effects[effect.do](effect);
    this.session = new Session({ regions: this.regions, random: Math.random, emit, transports, heartbeat });
    this.#do((now) => this.session.start(now));
  }

  /** A tab's note. */
  note(note) {
    this.#do((now) => this.session.note(note, now));
  }

  rouse() {
    this.#do((now) => this.session.rouse(now));
  }

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

  /** Every event of the world goes through here: time has passed, and afterwards the timer is set anew. */
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

  #effects = {
    survey: async () => {
      const answers = await survey(this.regions, Date.now());
      this.#do((now) => this.session.surveyed(answers, now));
      remember(this.memory, this.regions.memory(answers));
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

  #open(gateway, transport) {
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
      const load = (url) => loadSockJS(this.sockjs, url);
      this.#socket = transport === "websocket" ? openWebSocket(gateway, on) : openSockJS(gateway, on, { load, transports });
    } catch {
      // No such API, or a URL that this page may not open. Not now: the session is still opening.
      queueMicrotask(() => on.closed({ code: 1006 }));
    }
  }

  #heard(text) {
    const push = parsePush(text);
    this.#do((now) => {
      this.session.heard(now);
      if (push) this.session.push(push, now);
    });
  }
}

/** A push of the gateway as an object with a string `type`, or null. */
export function parsePush(text) {
  try {
    const push = JSON.parse(text);
    return typeof push?.type === "string" ? push : null;
  } catch {
    return null;
  }
}

// Storage may be denied (private windows): then each page measures for itself.
function recall(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

function remember(key, memory) {
  try {
    localStorage.setItem(key, JSON.stringify(memory));
  } catch {
    // Nothing is lost but time.
  }
}
