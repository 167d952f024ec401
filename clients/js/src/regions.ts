/**
 * Chooses the region to read from, and its gateway. Pure: answers, time and randomness are arguments.
 *
 * Home is the fastest healthy region, by measured time. Another one replaces it only when it was clearly
 * faster twice in a row, asked at the same moment. A measurement over a cold connection, or while a page is
 * being built, is mostly chance, and readers that move to and fro cost more than they gain. Until there is a
 * measurement the region named first is home.
 *
 * endpoints.json comes from elsewhere: whatever its content, this module's output is bounded and harmless.
 */

const MOST_REGIONS = 16;
const AVOIDED_MS = 30_000; // a gateway that failed; so long it may take to vanish from endpoints.json, and more
const CLEARLY = { share: 0.75, ms: 20, times: 2 };
const HOME_MS = 1000;
const MOST_FAILED = 64;
const CANDIDATES = 4;

/** At least one of its two URLs is present. */
export interface GatewayUrls {
  websocket: string | null;
  sockjs: string | null;
  weight: number;
}

/** endpoints.json, as far as it is valid. */
export interface Endpoints {
  region: string;
  gateways: GatewayUrls[];
  alternates: { region: string; url: string }[];
  retryMs: number;
}

/** A region's answer. `endpoints` is null where there was no usable answer, `isLate` means that it was asked after the others. */
export interface RegionAnswer {
  url: string;
  ms: number;
  isLate?: boolean;
  endpoints: Endpoints | null;
  /** The reason why the content is no endpoints.json, for any client, and at any time. */
  wrong?: string;
}

/** A gateway to try, of the region whose endpoints.json is at `url` and arrived within `ms`. */
export interface Candidate {
  url: string;
  ms: number;
  region: string;
  gateway: GatewayUrls;
}

/** The memory of earlier pages; it was stored where anybody may write. */
export interface Memory {
  home?: unknown;
  urls?: unknown;
}

/** A number in [0, 1). */
export type Random = () => number;

type Healthy = RegionAnswer & { endpoints: Endpoints };

/** `text` as an absolute URL of one of `schemes`, or null. */
export function urlOf(text: unknown, base?: string, schemes = ["http:", "https:"]): string | null {
  if (typeof text !== "string" || text.length > 2048) return null;
  try {
    const url = new URL(text, base);
    return schemes.includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/**
 * endpoints.json, as {region, gateways: [{websocket, sockjs, weight}…], alternates: [{region, url}…], retryMs}.
 * Gateways without a usable URL are left out.
 */
export function parseEndpoints(answer: any, base: string): Endpoints {
  const gateways = listOf(answer?.gateways).map((gateway) => ({
    websocket: urlOf(gateway?.websocket_url, base, ["ws:", "wss:"]),
    sockjs: urlOf(gateway?.sockjs_url, base),
    weight: gateway?.weight > 0 && Number.isFinite(gateway.weight) ? gateway.weight : 1,
  }));
  const alternates = listOf(answer?.alternates).map((other) => ({
    region: nameOf(other?.region),
    url: urlOf(other?.endpoints_url, base),
  }));
  return {
    region: nameOf(answer?.region),
    gateways: gateways.filter(({ websocket, sockjs }) => websocket ?? sockjs),
    alternates: alternates.filter((other): other is { region: string; url: string } => other.url !== null),
    retryMs: Number.isFinite(answer?.retry_ms) ? Math.min(60_000, Math.max(0, answer.retry_ms)) : 0,
  };
}

/** A random one of `gateways`, by weight; undefined if there are none. */
export function chooseGateway(gateways: GatewayUrls[], random: number): GatewayUrls | undefined {
  let left = random * gateways.reduce((sum, { weight }) => sum + weight, 0);
  return gateways.find(({ weight }) => (left -= weight) < 0) ?? gateways.at(-1);
}

/** The name of a gateway, whichever of its transports is used. */
export function keyOf({ websocket, sockjs }: GatewayUrls): string {
  return (websocket ?? sockjs)!;
}

export class KnownRegions {
  /** URLs of endpoints.json. */
  urls: string[];
  /** The URLs that the page named. */
  readonly given: string[];
  /** The URL of home. */
  home: string;
  #failed = new Map<string, number>(); // gateway's key → when
  #homeFailedAt = -Infinity;
  #faster: string | null = null; // the URL that was clearly faster than home the last time
  #times = 0; // in a row, in a fair comparison

  /** `urls` of endpoints.json, home first; `known` is the result of an earlier page's `memory()`. */
  constructor(urls: string[], known: Memory | null = null) {
    this.urls = [...new Set(urls)].slice(0, MOST_REGIONS);
    this.given = this.urls.slice();
    for (const url of listOf(known?.urls)) if (urlOf(url)) this.#add(url);
    this.home = this.urls.find((url) => url === known?.home) ?? this.urls[0]!;
  }

  /**
   * The memory for later pages, as JSON-like data: home, and the regions named in these answers. Null without a
   * useful answer: a page that was offline has learned nothing, and must not forget.
   */
  memory(answers: RegionAnswer[]): Memory | null {
    if (!answers.some(isHealthy)) return null;
    const urls = answers.flatMap(({ url, endpoints }) => (endpoints ? [url, ...endpoints.alternates.map((other) => other.url)] : []));
    return { home: this.home, urls: [...new Set(urls)] };
  }

  /** Note an answer's alternates; returns the unknown URLs. */
  learn({ alternates }: Pick<Endpoints, "alternates">): string[] {
    return alternates.map(({ url }) => url).filter((url) => this.#add(url));
  }

  #add(url: string): boolean {
    const isNew = !this.urls.includes(url) && this.urls.length < MOST_REGIONS;
    if (isNew) this.urls.push(url);
    return isNew;
  }

  /** The gateway of a candidate failed or sent us away: others are tried first for a while. */
  failed({ url, gateway }: Pick<Candidate, "url" | "gateway">, now: number): void {
    if (url === this.home) this.#homeFailedAt = now;
    this.#failed.delete(keyOf(gateway));
    this.#failed.set(keyOf(gateway), now);
    for (const [oldest] of this.#failed) if (this.#failed.size > MOST_FAILED) this.#failed.delete(oldest);
  }

  /** The clock was set by `ms`. */
  shift(ms: number): void {
    this.#homeFailedAt += ms;
    for (const [key, at] of this.#failed) this.#failed.set(key, at + ms);
  }

  #isAvoided(gateway: GatewayUrls, now: number): boolean {
    const at = this.#failed.get(keyOf(gateway));
    return at !== undefined && now - at < AVOIDED_MS;
  }

  /**
   * The gateways to try, best first, as [{url, ms, region, gateway}…]; empty if there are none.
   *
   * `answers` is [{url, ms, isLate, endpoints}…] with endpoints null where there was no usable answer. First are
   * two gateways of home, then one of each region by time; gateways that failed lately are last.
   */
  candidates(answers: RegionAnswer[], now: number, random: Random): Candidate[] {
    const ranked = this.#rank(answers.filter(isHealthy));
    const good: Candidate[] = [];
    const avoided: Candidate[] = [];
    for (const [place, { url, ms, endpoints }] of ranked.entries()) {
      const usable = endpoints.gateways.filter((gateway) => !this.#isAvoided(gateway, now));
      for (let n = place === 0 ? 2 : 1; n > 0 && usable.length; n -= 1) {
        const gateway = chooseGateway(usable, random())!;
        usable.splice(usable.indexOf(gateway), 1);
        good.push({ url, ms, region: endpoints.region, gateway });
      }
      const rest = endpoints.gateways.filter((gateway) => this.#isAvoided(gateway, now));
      const last = chooseGateway(rest, random());
      if (last) avoided.push({ url, ms, region: endpoints.region, gateway: last });
    }
    return [...good, ...avoided].slice(0, CANDIDATES);
  }

  /** Home first, the others by time. */
  #rank(healthy: Healthy[]): Healthy[] {
    const byTime = [...healthy].sort((a, b) => a.ms - b.ms);
    const home = byTime.find(({ url }) => url === this.home);
    const [fastest] = byTime;
    if (!home || !fastest) return byTime;
    const clearly = fastest.ms < home.ms * CLEARLY.share && home.ms - fastest.ms > CLEARLY.ms;
    if (!clearly || fastest.url !== this.#faster) this.#times = 0;
    // A region that is asked later, once the page has been built, is not compared: it seems faster than it is.
    if (clearly && !fastest.isLate) this.#times += 1;
    if (this.#times === CLEARLY.times) this.home = fastest.url;
    this.#faster = clearly && this.home !== fastest.url ? fastest.url : null;
    const first = fastest.url === this.home ? fastest : home;
    return [first, ...byTime.filter((answer) => answer !== first)];
  }

  /** True if these answers leave home undecided, so that another round is worth its time. */
  get undecided(): boolean {
    return this.#faster !== null;
  }

  /**
   * The wait for further answers, in ms after the first healthy one that took `ms`. A region that needs more
   * than twice as long is not the fastest, but a region that the first answer named gets its chance. Home gets
   * more while `isHomeAwaited`, unless it has just failed us: a slow moment is no reason to leave it.
   */
  patience(ms: number, isHomeAwaited: boolean, now: number): number {
    if (isHomeAwaited && now - this.#homeFailedAt > AVOIDED_MS) return HOME_MS;
    return Math.min(1000, Math.max(100, ms));
  }
}

function isHealthy(answer: RegionAnswer): answer is Healthy {
  return Boolean(answer.endpoints?.gateways.length);
}

function nameOf(value: unknown): string {
  return typeof value === "string" ? value.slice(0, 64) : "";
}

function listOf(value: unknown): any[] {
  return Array.isArray(value) ? value.slice(0, 64) : [];
}
