/**
 * The messages that a subscription has had, so that none is passed on twice. Pure, and bounded by number and time.
 *
 * Time is that of the routers' clock inside the ids, not this device's: after a night's sleep the first
 * replayed messages are as old as the last ones seen, and must still be known as repeats.
 */

/** The limit of a replay of a gateway (docs/protocol.md, "Coming back"). */
export const MOST = 10_000;
export const KEPT_MS = 6 * 3_600_000;

/** The identity in a message's id: all but the first 48 bits, which are a router's clock. */
export function identityOf(id: string): string {
  return String(id).slice(14);
}

/** The same as in receipts and `newsfabric trace`: nineteen hex digits, "" for a malformed id. */
export function identityText(id: string): string {
  // RFC 9562 section 5.7: 12 bits after the version, 62 after the variant.
  const [, high, variant, low] = /^\w{8}-\w{4}-7(\w{3})-([89ab])(\w{3}-\w{12})$/.exec(id) ?? [];
  if (!low) return "";
  const first = (parseInt(high!, 16) << 2) | (parseInt(variant!, 16) & 3);
  return first.toString(16).padStart(4, "0") + low.replace("-", "");
}

/** Routing time of the message with this id, ms since the epoch; 0 if the id has none. */
export function routedAt(id: string): number {
  const hex = String(id).slice(0, 13).replace("-", "");
  return /^[0-9a-f]{12}$/i.test(hex) ? parseInt(hex, 16) : 0;
}

export class SeenMessages {
  #at = new Map<string, number>(); // identity → routing time, first seen first
  #newest = 0;
  #most: number;
  #keptMs: number;

  constructor({ most = MOST, keptMs = KEPT_MS } = {}) {
    this.#most = most;
    this.#keptMs = keptMs;
  }

  get size(): number {
    return this.#at.size;
  }

  /** Note the message with this `id`; false if it was noted before. */
  first(id: string): boolean {
    const identity = identityOf(id);
    if (this.#at.has(identity)) return false;
    const at = routedAt(id);
    this.#at.set(identity, at);
    this.#newest = Math.max(this.#newest, at);
    this.#forget();
    return true;
  }

  #forget(): void {
    for (const [identity, at] of this.#at) {
      if (this.#at.size <= this.#most && at >= this.#newest - this.#keptMs) return;
      this.#at.delete(identity);
    }
  }
}
