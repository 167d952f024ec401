/** Time and chance of one history. Nothing else in a simulation knows a clock or throws dice. */

import { randomsOf } from "../support.mjs";

export class SimulatedWorld {
  constructor(seed) {
    this.random = randomsOf(seed);
    this.now = 1_735_689_600_000;
    this.isHealed = false;
    this.trace = [];
    this.fault = null;
    this.isSettling = false; // whether promises have to be let settle before the next event
    this.begun = this.now;
    this.events = []; // a heap of [time, order, function]
    this.order = 0;
  }

  chance(share) {
    return this.random() < share;
  }

  int(below) {
    return Math.floor(this.random() * below);
  }

  ms(least, most) {
    return least + this.int(most - least + 1);
  }

  pick(list) {
    return list[this.int(list.length)];
  }

  note(...words) {
    this.trace.push([this.now - this.begun, ...words]);
  }

  /** Record a broken invariant, named by `what` without the seed; the first one counts. */
  broken(what) {
    this.note("BROKEN", what);
    this.fault ??= what;
  }

  after(ms, happen) {
    const { events } = this;
    const event = [this.now + Math.max(0, Math.ceil(ms)), (this.order += 1), happen];
    let place = events.push(event) - 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!isSooner(event, events[parent])) break;
      events[place] = events[parent];
      place = parent;
    }
    events[place] = event;
  }

  #next() {
    const { events } = this;
    const first = events[0];
    const last = events.pop();
    if (!events.length) return first;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= events.length) break;
      if (child + 1 < events.length && isSooner(events[child + 1], events[child])) child += 1;
      if (!isSooner(events[child], last)) break;
      events[place] = events[child];
      place = child;
    }
    events[place] = last;
    return first;
  }

  /** Let `ms` pass, or less when `isEnough()` or an invariant is broken. */
  async run(ms, isEnough = () => false) {
    const end = this.now + ms;
    if (this.isSettling) await this.#settle();
    while (this.events.length && this.events[0][0] <= end && !this.fault) {
      const [at, , happen] = this.#next();
      this.now = at;
      happen();
      if (this.isSettling) await this.#settle();
      if (isEnough()) return true;
    }
    if (!this.fault) this.now = end;
    return false;
  }

  /** Promises of the library hang together by a few. */
  async #settle() {
    this.isSettling = false;
    for (let n = 0; n < 12; n += 1) await null;
  }
}

function isSooner([at, order], [otherAt, otherOrder]) {
  return at === otherAt ? order < otherOrder : at < otherAt;
}
