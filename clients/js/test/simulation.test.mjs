/** Histories by chance, on simulated tabs, threads, clocks and gateways: simulation/history.mjs has the conditions for each. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FAULTS } from "./simulation/faults.mjs";
import { play } from "./simulation/history.mjs";
import { libraryWith } from "./simulation/library.mjs";

const HISTORIES = Number(process.env.NEWSFABRIC_HISTORIES ?? 2_000);

/** The first of these seeds whose history breaks an invariant, and which; null if there is none. */
async function firstBroken(library, first, last) {
  for (let seed = first; seed <= last; seed += 1) {
    const { fault, trace } = await play(library, seed);
    if (fault) return { seed, fault, trace: trace.slice(-20).map((words) => words.join(" ")) };
  }
  return null;
}

test(`${HISTORIES} histories break no invariant`, async () => {
  const broken = await firstBroken(await libraryWith(), 1, HISTORIES);
  assert.equal(broken, null, broken && `seed ${broken.seed}: ${broken.fault}\n${broken.trace.join("\n")}`);
});

test("the same seed is the same history", async () => {
  const library = await libraryWith();
  const [one, other] = [await play(library, 17), await play(library, 17)];
  assert.deepEqual(one.trace, other.trace);
  assert.ok(one.trace.length > 20);
});

for (const [name, { says, from, within }] of Object.entries(FAULTS)) {
  test(`it is found if ${says}`, async () => {
    const broken = await firstBroken(await libraryWith(name), from, from + within - 1);
    assert.ok(broken, `${name}: nothing in ${within} histories from ${from} on`);
  });
}
