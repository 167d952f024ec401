/** Carries out a session's effects: sockets, discovery, one timer. Thin: session.ts decides. */

import type { ConnectOptions } from "./api.ts";
import { BROKEN } from "./closing.ts";
import { discover } from "./discovery.ts";
import type { Heartbeat } from "./liveness.ts";
import type { ToConnection, ToTabs } from "./notes.ts";
import { KnownRegions } from "./regions.ts";
import type { GatewayUrls, Memory } from "./regions.ts";
import { Session } from "./session.ts";
import type { Effect } from "./effects.ts";
import { loadSockJS, openSockJS, openWebSocket, probe } from "./transport.ts";
import type { Socket, SocketEvents } from "./transport.ts";
import { lineOf, parsePush } from "./wire.ts";
import type { Verb } from "./wire.ts";

const WAKE_MS = 30_000;

interface ConnectionOptions {
  endpoints: string[];
  transports: string[];
  heartbeat: Heartbeat;
  sockjs: ConnectOptions["sockjs"];
  WebSocket: ConnectOptions["WebSocket"];
  /** Takes lines of the traffic. */
  log?: (line: string) => void;
  /** Takes notes for the tabs. */
  notify: (note: ToTabs) => void;
}

export class SharedConnection {
  #options;
  #memory: string; // the key under which regions are remembered
  #regions: KnownRegions;
  #session: Session;
  #socket: Socket | null = null;
  #timer = 0;
  #isTurning = false; // true while the effects of this turn of the event loop are unsent
  #isOver = false;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    const { endpoints, transports, heartbeat } = options;
    this.#memory = `newsfabric.regions ${endpoints[0]}`;
    const regions = new KnownRegions(endpoints, recall(this.#memory));
    this.#regions = regions;
    const emit = (effect: Effect) => this.#carryOut(effect);
    this.#session = new Session({ regions, random: Math.random, emit, transports, heartbeat });
    this.#do((now) => this.#session.start(now));
  }

  /** A tab's note. */
  note(note: ToConnection): void {
    this.#do((now) => this.#session.note(note, now));
  }

  /** The network is back, or the device awake. */
  recheck(): void {
    this.#do((now) => this.#session.recheck(now));
  }

  hide(isHidden: boolean): void {
    this.#do((now) => this.#session.hide(isHidden, now));
  }

  /** End it without a message: tabs that still want a connection have another by now. */
  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#hangUp();
  }

  /** Every external event passes through here: time has passed, and afterwards the timer is set anew. */
  #do(step: (now: number) => void): void {
    if (this.#isOver) return;
    const now = Date.now();
    this.#session.wake(now);
    step(now);
    this.#setTimer(now);
    if (this.#isTurning) return;
    this.#isTurning = true;
    queueMicrotask(() => this.#turned());
  }

  /** Send the messages of this turn of the event loop. */
  #turned(): void {
    this.#isTurning = false;
    if (this.#isOver) return;
    const now = Date.now();
    this.#session.turned(now);
    this.#setTimer(now);
  }

  #setTimer(now: number): void {
    clearTimeout(this.#timer);
    const due = this.#session.due();
    const wait = due === null ? WAKE_MS : Math.min(WAKE_MS, Math.max(0, due - now));
    this.#timer = setTimeout(() => this.#do(() => {}), wait);
  }

  #carryOut(effect: Effect): void {
    if (effect.do === "discover") this.#discover();
    else if (effect.do === "open") this.#open(effect.target.gateway, effect.transport);
    else if (effect.do === "probe") this.#probe(effect.target.gateway, effect.ms);
    else if (effect.do === "send") this.#send(effect.verb);
    else if (effect.do === "hangup") this.#hangUp();
    else this.#notify(effect.note);
  }

  #send(verb: Verb): void {
    this.#options.log?.(lineOf("says", verb));
    this.#socket?.send(JSON.stringify(verb));
  }

  #notify(note: ToTabs): void {
    if (note.t === "state") this.#options.log?.(`is ${note.state} ${JSON.stringify(note.details)}`);
    this.#options.notify(note);
  }

  async #discover(): Promise<void> {
    const answers = await discover(this.#regions, Date.now());
    for (const { url, ms, endpoints, wrong } of answers) this.#options.log?.(`asked ${url}: ${wrong ?? (endpoints ? `${endpoints.gateways.length} gateways, ${Math.round(ms)} ms` : "no answer")}`);
    this.#do((now) => this.#session.discovered(answers, now));
    const memory = this.#regions.memory(answers);
    if (memory) remember(this.#memory, memory);
  }

  async #probe(gateway: GatewayUrls, ms: number): Promise<void> {
    const isAlive = await probe(gateway, ms);
    this.#do((now) => this.#session.probed(isAlive, now));
  }

  #hangUp(): void {
    this.#socket?.close();
    this.#socket = null;
  }

  #open(gateway: GatewayUrls, transport: string): void {
    const on: SocketEvents = {
      opened: (name) => this.#do((now) => this.#session.opened(name, now)),
      heard: () => this.#do((now) => this.#session.heard(now)),
      text: (text) => this.#received(text),
      closed: (how) => {
        this.#socket = null;
        this.#do((now) => this.#session.closed(how, now));
      },
    };
    try {
      this.#socket = transport === "websocket" ? openWebSocket(gateway, on, this.#options.WebSocket) : this.#openSockJS(gateway, on);
    } catch {
      // No such API, or a URL that this page may not open. Not now: the session is still opening.
      queueMicrotask(() => on.closed({ code: BROKEN }));
    }
  }

  #openSockJS(gateway: GatewayUrls, on: SocketEvents): Socket {
    const transports = this.#options.transports.filter((name) => name !== "websocket");
    return openSockJS(gateway, on, { load: (url) => loadSockJS(this.#options.sockjs, url), transports });
  }

  #received(text: string): void {
    const push = parsePush(text);
    this.#do((now) => {
      if (push) this.#options.log?.(lineOf("hears", push));
      this.#session.heard(now);
      if (push) this.#session.push(push, now);
    });
  }
}

// Storage may be denied (private windows): then each page measures for itself.
function recall(key: string): Memory | null {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

function remember(key: string, memory: Memory): void {
  try {
    localStorage.setItem(key, JSON.stringify(memory));
  } catch {
    // Only time is lost.
  }
}
