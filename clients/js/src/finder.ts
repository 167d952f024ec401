/** Finds gateways to try: asks the regions, once more while home is undecided, and now and then whether home is back. Pure. */

import type { State } from "./api.ts";
import type { RegionAnswer, Candidate, Random, KnownRegions } from "./regions.ts";
import type { Loss } from "./retries.ts";
import type { Timers } from "./timers.ts";

const HOME_MS = 300_000;
const MOST_ROUNDS = 3; // one round that names the regions, two that compare them

interface FinderOptions {
  regions: KnownRegions;
  timers: Timers;
  random: Random;
  /** Asks every region for its endpoints; then discovered(). */
  discover: () => void;
  /** Takes the gateways to try, the best first. */
  onFound: (candidates: Candidate[], now: number) => void;
  /** There are none. */
  onNone: (loss: Loss, now: number) => void;
  /** A URL that the page named is no endpoints.json. */
  onWrong: (reason: string) => void;
}

export class Finder {
  /** The other regions, by the last answers. */
  alternates: State["alternates"];
  #options: FinderOptions;
  #url = ""; // of the present or last region
  #rounds = 0;
  #wrong = new Set<string>(); // URLs from the page's options

  constructor(options: FinderOptions) {
    this.#options = options;
    options.timers.when({ home: options.discover });
  }

  start(): void {
    this.#rounds = 1;
    this.#options.discover();
  }

  /** The regions' answers, to a session in this `state`. */
  discovered(answers: RegionAnswer[], state: State["state"], now: number): void {
    const { regions, random } = this.#options;
    const candidates = regions.candidates(answers, now, random);
    for (const { url, wrong } of answers) if (wrong) this.#tellWrong(url, wrong);
    if (state === "finding") this.#choose(answers, candidates, now);
    else if (state === "open") this.#compareWithHome(candidates, now);
  }

  /** Once. The page doesn't know regions that other regions name. */
  #tellWrong(url: string, wrong: string): void {
    if (this.#wrong.has(url) || !this.#options.regions.given.includes(url)) return;
    this.#wrong.add(url);
    this.#options.onWrong(`endpoints: ${url}: ${wrong}`);
  }

  #choose(answers: RegionAnswer[], candidates: Candidate[], now: number): void {
    if (this.#options.regions.undecided && this.#rounds < MOST_ROUNDS) {
      this.#rounds += 1;
      return this.#options.discover();
    }
    const named = answers.flatMap(({ endpoints }) => endpoints ?? []);
    this.alternates = named[0]?.alternates ?? this.alternates;
    if (candidates.length) return this.#options.onFound(candidates, now);
    // Without a network no region answers: that is no region's fault.
    const floor = Math.max(0, ...named.map(({ retryMs }) => retryMs));
    const wrong = answers.find((answer) => answer.wrong);
    const reason = named.length ? "no gateway" : wrong ? `${wrong.url}: ${wrong.wrong}` : "no answer";
    return this.#options.onNone({ reason, floor }, now);
  }

  #compareWithHome(candidates: Candidate[], now: number): void {
    const { home } = this.#options.regions;
    const isBetter = candidates[0]?.url === home && this.#url !== home;
    if (isBetter) this.#options.onFound(candidates, now);
    else this.opened(this.#url, now);
  }

  /** The connection is in the region of this `url`; if that isn't home, ask in some minutes whether home has a gateway again. */
  opened(url: string, now: number): void {
    this.#url = url;
    const { regions, timers, random } = this.#options;
    if (url !== regions.home) timers.set("home", now + HOME_MS * (0.5 + random()));
  }
}
