import assert from "node:assert/strict";
import { test } from "node:test";

import { SeenMessages, identityOf, identityText, routedAt } from "../src/seen.ts";
import { idOf, randomsOf } from "./support.mjs";

test("copies of a message differ in the first 48 bits of the id alone", () => {
  const one = "01890000-0000-7abc-8def-0123456789ab";
  assert.equal(identityOf(one), identityOf("01891111-2222-7abc-8def-0123456789ab"));
  assert.notEqual(identityOf(one), identityOf("01890000-0000-7abc-8def-0123456789ac"));
});

test("an identity is what a receipt says of the message, whichever router gave the id", () => {
  assert.equal(identityText("01a1fd8f-fd96-79d0-baa7-ac79215815ab"), "2743aa7ac79215815ab");
  assert.equal(identityText("01890000-0000-79d0-baa7-ac79215815ab"), "2743aa7ac79215815ab");
  assert.equal(identityText("01890000-0000-7000-8000-000000000001"), "0000000000000000001");
  for (const junk of ["", "x", "01890000-0000-4000-8000-000000000001", null]) assert.equal(identityText(junk), "");
});

test("an id tells when its message was routed, and nonsense tells nothing", () => {
  assert.equal(routedAt(idOf({ n: 1, at: 1_735_689_600_000 })), 1_735_689_600_000);
  for (const junk of ["", "x", "zzzzzzzz-zzzz-7", null]) assert.equal(routedAt(junk), 0);
});

test("a copy is a repeat, whenever it was routed", () => {
  const seen = new SeenMessages();
  assert.ok(seen.first(idOf({ n: 1, at: 1000 })));
  assert.ok(!seen.first(idOf({ n: 1, at: 9000 })));
});

test("it is bounded by number: the first seen go first", () => {
  const seen = new SeenMessages({ most: 3 });
  for (const n of [1, 2, 3, 4]) seen.first(idOf({ n, at: n }));
  assert.equal(seen.size, 3);
  assert.ok(seen.first(idOf({ n: 1, at: 1 })));
  assert.ok(!seen.first(idOf({ n: 4, at: 4 })));
});

test("it is bounded by time, and the clock is that of the messages", () => {
  const seen = new SeenMessages({ keptMs: 1000 });
  seen.first(idOf({ n: 1, at: 5000 }));
  assert.ok(!seen.first(idOf({ n: 1, at: 5000 })), "however long the device slept meanwhile");
  seen.first(idOf({ n: 2, at: 6001 }));
  assert.equal(seen.size, 1);
});

test("within its bounds nothing comes twice, in whatever order copies come", () => {
  for (let seed = 1; seed <= 200; seed += 1) {
    const random = randomsOf(seed);
    const seen = new SeenMessages({ most: 50 });
    const got = Array.from({ length: 300 }, () => Math.floor(random() * 60)).filter((n) =>
      seen.first(idOf({ n: n % 50, at: Math.floor(random() * 1000) })),
    );
    const numbers = got.map((n) => n % 50);
    assert.equal(new Set(numbers).size, numbers.length, `seed ${seed}`);
    assert.ok(seen.size <= 50);
  }
});
