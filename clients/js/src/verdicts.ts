/**
 * The time at which a silent peer may be taken for dead.
 *
 * A page's thread may be blocked, by a script of its own or because the device is busy. Then nothing is read, and
 * afterwards a timer may run before data that arrived meanwhile. So no verdict follows from the first timer, but from
 * one that is set shortly before; and a late verdict is put off for a second. Unread data is read in that time.
 */

/** Time before a verdict at which its timer is set once more, in ms: a turn of the event loop. */
export const TURN_MS = 50;
/** Delay of a late verdict, in ms. */
export const PUT_OFF_MS = 1000;
// In a visible page, timers are some ms late.
const LATE_MS = 100;
// Scripts may block the thread several times in a row. Timers of hidden pages are always late.
const MOST = { seen: 3, hidden: 1 };

/** True if a verdict that is `late` by some ms must wait, after `times` delays. */
export function isPutOff(late: number, times: number, isHidden: boolean): boolean {
  return late > LATE_MS && times < (isHidden ? MOST.hidden : MOST.seen);
}

/** Call `judge` in `ms`, or later if that is late. Returns a function that cancels it. */
export function judgeAfter(ms: number, judge: () => void): () => void {
  let timer = 0;
  let times = 0;
  const wait = (ms: number, then: () => void) => {
    const due = performance.now() + ms;
    timer = setTimeout(() => {
      if (!isPutOff(performance.now() - due, times, Boolean(globalThis.document?.hidden))) return then();
      times += 1;
      return wait(PUT_OFF_MS, judge);
    }, ms);
  };
  wait(Math.max(0, ms - TURN_MS), () => wait(TURN_MS, judge));
  return () => clearTimeout(timer);
}

/** The result of `ask`; its signal tells it to give up after `ms`. */
export async function within<Found>(ms: number, ask: (signal: AbortSignal) => Promise<Found>): Promise<Found> {
  const patience = new AbortController();
  const callOff = judgeAfter(ms, () => patience.abort());
  try {
    return await ask(patience.signal);
  } finally {
    callOff();
  }
}
