/** Tries one gateway after the other, over WebSocket or SockJS, until one opens. Pure. */

import type { Candidate, KnownRegions } from "./regions.ts";
import type { Loss } from "./retries.ts";
import type { Effect } from "./effects.ts";
import type { Timers } from "./timers.ts";

const PATIENCE = { least: 3000, most: 15_000 };
const BLOCKED_MS = 600_000; // WebSocket isn't tried again for so long on a network that forbids it
const MUTE_MS = 10_000;

interface DiallerOptions {
  regions: KnownRegions;
  timers: Timers;
  /** "websocket" and the names of sockjs-client's that may be used. */
  transports: string[];
  emit: (effect: Effect) => void;
  /** No gateway could be reached. */
  onNone: (loss: Loss, now: number) => void;
}

export class Dialler {
  /** The gateway that is tried, or connected; there is one after the first try. */
  target!: Candidate;
  /** True if it has pushed anything. */
  hasSpoken = false;
  #transport = "";
  #candidates: Candidate[] = [];
  #blockedUntil = 0;
  #mute = 0; // WebSockets in a row that opened and never sent anything
  #options: DiallerOptions;
  #mayUseWebSocket: boolean;
  #mayUseSockJS: boolean;

  constructor(options: DiallerOptions) {
    this.#options = options;
    const { timers, transports, emit } = options;
    this.#mayUseWebSocket = transports.includes("websocket");
    this.#mayUseSockJS = transports.some((name) => name !== "websocket");
    timers.when({
      dial: (now) => {
        emit({ do: "hangup" });
        this.#failed(now);
      },
    });
  }

  /** Try these, the best first. */
  start(candidates: Candidate[], now: number): void {
    this.#candidates = candidates;
    this.#next(now);
  }

  #next(now: number): void {
    const next = this.#candidates.shift();
    if (!next) return this.#options.onNone({ reason: "no gateway can be reached" }, now);
    this.target = next;
    this.#transport = this.#bestTransport(now);
    return this.#transport ? this.#open(now) : this.#next(now);
  }

  #bestTransport(now: number): string {
    const { websocket, sockjs } = this.target.gateway;
    if (websocket && this.#mayUseWebSocket && now >= this.#blockedUntil) return "websocket";
    return sockjs && this.#mayUseSockJS ? "sockjs" : "";
  }

  #open(now: number): void {
    this.hasSpoken = false;
    // sockjs-client tries its transports one after the other, and may have to be loaded first.
    this.#options.timers.set("dial", now + this.#patience * (this.#transport === "websocket" ? 1 : 4));
    this.#options.emit({ do: "open", target: this.target, transport: this.#transport });
  }

  /** Opening takes some round trips: where endpoints.json alone was slow, each is slow. */
  get #patience(): number {
    return Math.min(PATIENCE.most, Math.max(PATIENCE.least, 8 * this.target.ms));
  }

  /** The socket never opened. */
  refused(now: number): void {
    if (this.#transport !== "websocket" || !this.target.gateway.sockjs || !this.#mayUseSockJS) return this.#failed(now);
    // The answer of this probe arrives in any case, and must not be taken for that of the next one.
    this.#options.timers.delete("dial");
    return this.#options.emit({ do: "probe", target: this.target, ms: this.#patience });
  }

  /** `isAlive`: the gateway answers over HTTP, so the network forbids WebSocket. */
  probed(isAlive: boolean, now: number): void {
    if (!isAlive) return this.#failed(now);
    this.#blockedUntil = now + BLOCKED_MS;
    this.#transport = "sockjs";
    return this.#open(now);
  }

  #failed(now: number): void {
    this.#options.timers.delete("dial");
    this.#options.regions.failed(this.target, now);
    this.#next(now);
  }

  /** The clock was set by `ms`. */
  shift(ms: number): void {
    this.#blockedUntil += ms;
    this.#options.regions.shift(ms);
  }

  /** The lost connection's evidence about its gateway and about WebSocket here. */
  lost(openFor: number, now: number): void {
    this.#options.regions.failed(this.target, now);
    const isMute = this.#transport === "websocket" && !this.hasSpoken && openFor < MUTE_MS;
    this.#mute = isMute ? this.#mute + 1 : 0;
    if (this.#mute >= 2 && this.#mayUseSockJS) this.#blockedUntil = now + BLOCKED_MS;
  }
}
