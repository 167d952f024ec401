/**
 * Plays histories: node --import ./test/typescript.mjs test/simulation/play.mjs [--seeds 1-500] [--planted NAME]
 *
 *   --seeds A-B       these histories; one seed alone shows everything that happens in it
 *   --planted NAME    with a fault of faults.mjs in the library; ends at the first history that finds it
 *   --list            the faults
 *
 * Ends with 1 if an invariant was broken, and names the seed.
 */

import { parseArgs } from "node:util";

import { FAULTS } from "./faults.mjs";
import { play } from "./history.mjs";
import { libraryWith } from "./library.mjs";

const LAST_EVENTS = 25;

const { values } = parseArgs({ options: { seeds: { type: "string", default: "1-500" }, planted: { type: "string" }, list: { type: "boolean" } } });
const [first, last = first] = values.seeds.split("-").map(Number);

function show(trace) {
  for (const [at, ...words] of trace) console.log(`${(at / 1000).toFixed(3).padStart(9)}  ${words.join(" ")}`);
}

async function main() {
  if (values.list) return void Object.entries(FAULTS).forEach(([name, { says }]) => console.log(`${name}: ${says}`));
  const library = await libraryWith(values.planted);
  const broken = new Map();
  for (let seed = first; seed <= last; seed += 1) {
    const { fault, trace } = await play(library, seed);
    if (first === last) show(trace);
    if (!fault) continue;
    process.exitCode = 1;
    if (!broken.has(fault)) {
      console.log(`seed ${seed}: ${fault}`);
      if (first !== last) show(trace.slice(-LAST_EVENTS));
    }
    broken.set(fault, (broken.get(fault) ?? 0) + 1);
    if (values.planted) return undefined;
  }
  for (const [fault, times] of broken) console.log(`${times} histories: ${fault}`);
  return undefined;
}

await main();
