/**
 * Which region to read from, and which of its gateways. Pure: answers, time and randomness come as arguments.
 *
 * Home is the fastest healthy region, by measured time. Another one replaces it only when it was clearly
 * faster twice in a row, asked at the same moment: a measurement over a cold connection, or while a page is
 * being built, is mostly chance, and readers that move to and fro cost more than they gain. Until there is a
 * measurement the region named first is home.
 *
 * endpoints.json comes from elsewhere: whatever it holds, what comes out here is bounded and harmless.
 */

const MOST_REGIONS = 16;
const AVOIDED_MS = 30_000; // a gateway that failed; as long as it may take to be missed in endpoints.json, and more
const CLEARLY = { share: 0.75, ms: 20, times: 2 };
const HOME_MS = 1000;
const MOST_FAILED = 64;
const CANDIDATES = 4;

/** @import { Answer, Candidate, Endpoints, Gateway, Memory, Random } from "./types" */

/**
 * `text` as an absolute URL of one of `schemes`, or null.
 * @param {unknown} text
 * @param {string} [base]
 */
export function urlOf(text, base, schemes = ["http:", "https:"]) {
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
 * @param {any} answer
 * @param {string} base
 * @returns {Endpoints}
 */
export function parseEndpoints(answer, base) {
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
    alternates: /** @type {Endpoints["alternates"]} */ (alternates.filter(({ url }) => url)),
    retryMs: Number.isFinite(answer?.retry_ms) ? Math.min(60_000, Math.max(0, answer.retry_ms)) : 0,
  };
}

/**
 * One of `gateways` at random, by weight; undefined if there are none.
 * @param {Gateway[]} gateways
 * @param {number} random
 */
export function chooseGateway(gateways, random) {
  let left = random * gateways.reduce((sum, { weight }) => sum + weight, 0);
  return gateways.find(({ weight }) => (left -= weight) < 0) ?? gateways.at(-1);
}

/**
 * Names a gateway, whichever of its transports is used.
 * @param {Gateway} gateway
 */
export function keyOf({ websocket, sockjs }) {
  return /** @type {string} */ (websocket ?? sockjs);
}

/** @typedef {Answer & {endpoints: Endpoints}} Healthy with gateways */

export class Regions {
  /** @type {Map<string, number>} */
  #failed = new Map(); // gateway's key → when
  #doubted = -Infinity; // when a gateway of home failed
  /** @type {string | null} */
  #faster = null; // the URL that was clearly faster than home the last time
  #times = 0; // in a row, in a fair comparison

  /**
   * `urls` of endpoints.json, home first; `known` is what `memory()` returned to an earlier page.
   * @param {string[]} urls
   * @param {Memory | null} [known]
   */
  constructor(urls, known = null) {
    /** @type {string[]} */
    this.urls = [...new Set(urls)].slice(0, MOST_REGIONS);
    for (const url of listOf(known?.urls)) if (urlOf(url)) this.#add(url);
    this.home = /** @type {string} */ (this.urls.find((url) => url === known?.home) ?? this.urls[0]);
  }

  /**
   * What later pages shall know, as JSON-like data: home, and the regions that there are by these answers. Null
   * where no answer is of any use: whoever was offline has learned nothing, and must not forget.
   * @param {Answer[]} answers
   */
  memory(answers) {
    if (!answers.some(({ endpoints }) => endpoints?.gateways.length)) return null;
    const urls = answers.flatMap(({ url, endpoints }) => (endpoints ? [url, ...endpoints.alternates.map((other) => other.url)] : []));
    return { home: this.home, urls: [...new Set(urls)] };
  }

  /**
   * Take note of an answer's alternates; returns the URLs that weren't known.
   * @param {Pick<Endpoints, "alternates">} endpoints
   */
  learn(endpoints) {
    return endpoints.alternates.map(({ url }) => url).filter((url) => this.#add(url));
  }

  /** @param {string} url */
  #add(url) {
    const isNew = !this.urls.includes(url) && this.urls.length < MOST_REGIONS;
    if (isNew) this.urls.push(url);
    return isNew;
  }

  /**
   * The gateway of a candidate failed or sent us away: others come first for a while.
   * @param {Pick<Candidate, "url" | "gateway">} candidate
   * @param {number} now
   */
  failed({ url, gateway }, now) {
    if (url === this.home) this.#doubted = now;
    this.#failed.delete(keyOf(gateway));
    this.#failed.set(keyOf(gateway), now);
    for (const [oldest] of this.#failed) if (this.#failed.size > MOST_FAILED) this.#failed.delete(oldest);
  }

  /**
   * @param {Gateway} gateway
   * @param {number} now
   */
  #isAvoided(gateway, now) {
    const at = this.#failed.get(keyOf(gateway));
    return at !== undefined && now - at < AVOIDED_MS;
  }

  /**
   * The gateways to try, best first, as [{url, ms, region, gateway}…]; empty if there are none.
   *
   * `answers` is [{url, ms, isLate, endpoints}…] with endpoints null where there was no usable answer. Of home two
   * gateways come first, then one of each region by time; those that failed lately come last.
   * @param {Answer[]} answers
   * @param {number} now
   * @param {Random} random
   */
  candidates(answers, now, random) {
    const ranked = this.#rank(/** @type {Healthy[]} */ (answers.filter(({ endpoints }) => endpoints?.gateways.length)));
    /** @type {Candidate[]} */
    const good = [];
    /** @type {Candidate[]} */
    const avoided = [];
    for (const [place, { url, ms, endpoints }] of ranked.entries()) {
      const usable = endpoints.gateways.filter((gateway) => !this.#isAvoided(gateway, now));
      for (let n = place === 0 ? 2 : 1; n > 0 && usable.length; n -= 1) {
        const gateway = /** @type {Gateway} */ (chooseGateway(usable, random()));
        usable.splice(usable.indexOf(gateway), 1);
        good.push({ url, ms, region: endpoints.region, gateway });
      }
      const rest = endpoints.gateways.filter((gateway) => this.#isAvoided(gateway, now));
      const last = chooseGateway(rest, random());
      if (last) avoided.push({ url, ms, region: endpoints.region, gateway: last });
    }
    return [...good, ...avoided].slice(0, CANDIDATES);
  }

  /**
   * Home first, the others by time.
   * @param {Healthy[]} healthy
   */
  #rank(healthy) {
    const byTime = [...healthy].sort((a, b) => a.ms - b.ms);
    const home = byTime.find(({ url }) => url === this.home);
    const [fastest] = byTime;
    if (!home || !fastest) return byTime;
    const clearly = fastest.ms < home.ms * CLEARLY.share && home.ms - fastest.ms > CLEARLY.ms;
    if (!clearly || fastest.url !== this.#faster) this.#times = 0;
    // Who is asked later, once the page has been built, is not compared: it seems faster than it is.
    if (clearly && !fastest.isLate) this.#times += 1;
    if (this.#times === CLEARLY.times) this.home = fastest.url;
    this.#faster = clearly && this.home !== fastest.url ? fastest.url : null;
    const first = fastest.url === this.home ? fastest : home;
    return [first, ...byTime.filter((answer) => answer !== first)];
  }

  /** Whether these answers leave it open which region is home, so that another look is worth its time. */
  get undecided() {
    return this.#faster !== null;
  }

  /**
   * How long to wait for further answers, in ms after the first healthy one that took `ms`: who needs more than
   * twice as long is not the fastest, but one that was asked only when the first had named it gets its chance.
   * Home gets more while `isHomeAwaited`, unless it has just failed us: a slow moment is no reason to leave it.
   * @param {number} ms
   * @param {boolean} isHomeAwaited
   * @param {number} now
   */
  patience(ms, isHomeAwaited, now) {
    if (isHomeAwaited && now - this.#doubted > AVOIDED_MS) return HOME_MS;
    return Math.min(1000, Math.max(100, ms));
  }
}

/** @param {unknown} value */
function nameOf(value) {
  return typeof value === "string" ? value.slice(0, 64) : "";
}

/**
 * @param {unknown} value
 * @returns {any[]}
 */
function listOf(value) {
  return Array.isArray(value) ? value.slice(0, 64) : [];
}
