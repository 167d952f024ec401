import assert from "node:assert/strict";
import { test } from "node:test";

import { ReconnectBackoff, askedWait, closeAdvice, waitAfterLoss } from "../src/closing.ts";

test("the range of a close code says whether to come back", () => {
  const codes = [1002, 1006, 1007, 1009, 1012, 3000, 4000, 4099, 4100, 4199, 4200, 4299, 4300];
  const stop = codes.filter((code) => closeAdvice(code) === "stop");
  const now = codes.filter((code) => closeAdvice(code) === "now");
  assert.deepEqual(stop, [1002, 1007, 1009, 4000, 4099]);
  assert.deepEqual(now, [4200, 4299]);
});

test("waits double up to the cap, with full jitter", () => {
  const backoff = new ReconnectBackoff();
  const bounds = Array.from({ length: 8 }, () => backoff.next(1));
  assert.deepEqual(bounds, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
  assert.equal(backoff.next(0), 0);
  assert.equal(backoff.next(0.5), 15000);
});

test("a connection that was stable for a minute starts afresh", () => {
  const backoff = new ReconnectBackoff();
  backoff.next(1);
  assert.equal(backoff.next(1, 59_999), 1000);
  assert.equal(backoff.next(1, 60_000), 500);
});

test("a stop code is final, and so is a gateway that says so", () => {
  assert.equal(waitAfterLoss({ code: 4003, openFor: 9999 }, new ReconnectBackoff(), 1), null);
  const notice = { code: 4100, reconnect: false };
  assert.equal(waitAfterLoss({ code: 1006, notice }, new ReconnectBackoff(), 1), null);
});

test("the disconnect push counts when a proxy has eaten the close frame", () => {
  const notice = { code: 4200, reconnect: true, retry_after_ms: 700 };
  assert.equal(waitAfterLoss({ code: 1006, notice, openFor: 5000 }, new ReconnectBackoff(), 1), 700);
});

test("retry_after_ms is a floor under the backoff", () => {
  const notice = { code: 1012, reconnect: true, retry_after_ms: 2000 };
  assert.equal(waitAfterLoss({ code: 1012, notice, openFor: 5000 }, new ReconnectBackoff(), 1), 2500);
});

test("what makes no sense as a wait is none, and no gateway can ask for more than ten minutes", () => {
  assert.deepEqual([-5, "7", NaN, null, 1e12].map((ms) => askedWait({ retry_after_ms: ms })), [0, 0, 0, 0, 600_000]);
  assert.equal(askedWait(null), 0);
});

test("at once is not for connections that end as soon as they are open", () => {
  assert.equal(waitAfterLoss({ code: 4200, openFor: 5000 }, new ReconnectBackoff(), 1), 0);
  assert.equal(waitAfterLoss({ code: 4200, openFor: 10 }, new ReconnectBackoff(), 1), 500);
});
