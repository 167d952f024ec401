/** Asks every region for its endpoints at once, and those that the answers name as well, until patience ends. */

import { parseEndpoints, patience } from "./regions.js";

const ANSWER_MS = 4000;

/** Resolves to [{url, ms, endpoints}…], endpoints null where no usable answer came (in time). Never rejects. */
export function survey(regions, { ask = askEndpoints, clock = () => performance.now() } = {}) {
  const answers = new Map(); // url → answer
  return new Promise((resolve) => {
    const begun = clock();
    let timer = null;
    const finish = () => {
      clearTimeout(timer);
      resolve([...answers.values()]);
    };
    const askOne = async (url) => {
      answers.set(url, { url, ms: Infinity, endpoints: null });
      const start = clock();
      const endpoints = await ask(url);
      answers.set(url, { url, ms: clock() - start, endpoints, isIn: true });
      if (endpoints) regions.learn(endpoints).forEach(askOne);
      if ([...answers.values()].every(({ isIn }) => isIn)) finish();
      else if (endpoints?.gateways.length) timer ??= setTimeout(finish, patience(clock() - begun));
    };
    regions.urls.slice().forEach(askOne);
  });
}

/** The endpoints at `url`, or null when there is no usable answer in time. */
async function askEndpoints(url) {
  try {
    const signal = AbortSignal.timeout(ANSWER_MS);
    const answer = await fetch(url, { cache: "no-store", credentials: "omit", signal });
    // A region without a ready gateway says 503, and in the same document who has one.
    return answer.ok || answer.status === 503 ? parseEndpoints(await answer.json(), url) : null;
  } catch {
    return null;
  }
}
