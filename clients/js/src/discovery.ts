/** Asks every region for its endpoints at once, and the regions named in the answers as well, until a timeout. */

import { parseEndpoints } from "./regions.ts";
import type { RegionAnswer, KnownRegions } from "./regions.ts";
import { judgeAfter, within } from "./verdicts.ts";

const ANSWER_MS = 4000;

/**
 * The regions' answers, endpoints null where no usable answer arrived in time. Never rejects.
 * `now` is the time as `regions` knows it, `clock` runs meanwhile.
 */
export function discover(
  regions: KnownRegions,
  now: number,
  { ask = askEndpoints, clock = () => performance.now() } = {},
): Promise<RegionAnswer[]> {
  const answers = new Map<string, RegionAnswer & { isIn?: boolean }>(); // by url
  const { home } = regions;
  return new Promise((resolve) => {
    const begun = clock();
    let first: number | null = null; // time of the first healthy answer
    let callOff = () => {};
    const end = () => resolve([...answers.values()]);
    const look = () => {
      callOff();
      if ([...answers.values()].every(({ isIn }) => isIn)) return end();
      if (first === null) return;
      const left = first + regions.patience(first, !answers.get(home)?.isIn, now) - (clock() - begun);
      callOff = judgeAfter(Math.max(0, left), end);
    };
    const askOne = async (url: string, isLate: boolean) => {
      answers.set(url, { url, ms: Infinity, isLate, endpoints: null });
      const start = clock();
      const { endpoints, wrong } = await ask(url);
      answers.set(url, { url, ms: clock() - start, isLate, endpoints, wrong, isIn: true });
      if (endpoints) for (const named of regions.learn(endpoints)) askOne(named, true);
      if (endpoints?.gateways.length) first ??= clock() - begun;
      look();
    };
    for (const url of regions.urls.slice()) askOne(url, false);
  });
}

/** The endpoints at `url`; null without a usable answer in time, with words if time won't change that. */
async function askEndpoints(url: string): Promise<Pick<RegionAnswer, "endpoints" | "wrong">> {
  try {
    return await within(ANSWER_MS, async (signal) => read(url, await fetch(url, { cache: "no-store", credentials: "omit", signal })));
  } catch {
    return { endpoints: null };
  }
}

async function read(url: string, answer: Response): Promise<Pick<RegionAnswer, "endpoints" | "wrong">> {
  const { status } = answer;
  // Proxies and faulty servers return anything.
  const isTrouble = status >= 500 || status === 408 || status === 429;
  // A region without a ready gateway answers 503, and the same document names regions with one.
  if (!answer.ok && status !== 503) return { endpoints: null, wrong: isTrouble ? undefined : `HTTP ${status}` };
  const text = await answer.text();
  try {
    const endpoints = JSON.parse(text);
    if (Array.isArray(endpoints?.gateways) || status === 503) return { endpoints: parseEndpoints(endpoints, url) };
  } catch {
    // No JSON.
  }
  const found = /^\s*</.test(text) ? "an HTML page" : "something else";
  return { endpoints: null, wrong: isTrouble ? undefined : `it is ${found}, no endpoints.json` };
}
