/**
 * The consequences of a closed connection: whether and when to reconnect.
 *
 * Pure: randomness (`random`, in [0, 1)) and durations are arguments. The range of a code decides, so that
 * later codes are obeyed too; the table of codes is docs/protocol.md.
 */

import type { GatewayPush } from "./wire.ts";

/** The login is invalid, or was revoked: a reader without a login may reconnect. */
export const INVALID_TOKEN = 4001;
export const TOKEN_EXPIRED = 4202;
/** The code of a connection that ended without a close frame. */
export const BROKEN = 1006;

const MOST_ASKED_MS = 600_000;

// RFC 6455 7.4.1: the other side found our data malformed, so the same data would end the same way.
const HOPELESS = [1002, 1007, 1009];

/** The consequence of a close code. */
export function closeAdvice(code: number): "stop" | "now" | "back off" {
  if ((code >= 4000 && code <= 4099) || HOPELESS.includes(code)) return "stop";
  if (code >= 4200 && code <= 4299) return "now";
  return "back off";
}

/** The request of a gateway's `disconnect` push, in ms, as far as it is valid. */
export function askedWait(notice?: GatewayPush | null): number {
  const asked = notice?.retry_after_ms;
  return Number.isFinite(asked) ? Math.min(MOST_ASKED_MS, Math.max(0, asked)) : 0;
}

/** Waits between attempts, with full jitter: anything from 0 to a bound that doubles, in ms. */
export class ReconnectBackoff {
  readonly base: number;
  readonly cap: number;
  readonly stable: number;
  #attempts = 0;

  constructor({ base = 500, cap = 30_000, stable = 60_000 } = {}) {
    this.base = base;
    this.cap = cap;
    this.stable = stable;
  }

  /** The next wait. A connection that was open for `stable` ms resets the bound. */
  next(random: number, openFor = 0): number {
    if (openFor >= this.stable) this.#attempts = 0;
    const bound = Math.min(this.cap, this.base * 2 ** this.#attempts);
    this.#attempts = Math.min(this.#attempts + 1, 30);
    return Math.round(random * bound);
  }
}

/**
 * The wait after a loss, in ms; null means never try again.
 *
 * `hasSentToken`: an invalid login is no reason to stop, since the reader reconnects without it. `notice` is the
 * gateway's `disconnect` push, if there was one: proxies eat close frames, so its code counts before the socket's. "At
 * once" is granted only after a second of connection: otherwise a gateway that closes each of them would be hammered.
 */
export function waitAfterLoss(
  { code, notice = null, openFor = 0, hasSentToken = false }: { code: number; notice?: GatewayPush | null; openFor?: number; hasSentToken?: boolean },
  backoff: ReconnectBackoff,
  random: number,
): number | null {
  const advice = closeAdvice(notice?.code ?? code);
  const isLoginAlone = (notice?.code ?? code) === INVALID_TOKEN && hasSentToken;
  if (isLoginAlone) return askedWait(notice) + backoff.next(random, openFor);
  if (advice === "stop" || notice?.reconnect === false) return null;
  const asked = askedWait(notice);
  if (advice === "now" && openFor >= 1000) return asked;
  return asked + backoff.next(random, openFor);
}
