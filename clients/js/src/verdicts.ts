/**
 * When somebody may be taken for dead because nothing came of him.
 *
 * While a page's thread is blocked, by a script of its own or because the device has other things to do, nothing is read,
 * and afterwards a timer may come before what was said meanwhile. So nobody is judged by the first timer, but by one that
 * is set shortly before; and a verdict that comes late is put off for a second. What waits unread is read in that time.
 */

/** So long before a verdict its timer is set once more, in ms: a turn of the event loop. */
export const TURN_MS = 50;
/** For so long a late verdict is put off, in ms. */
export const PUT_OFF_MS = 1000;
// In a page that is seen, timers come some ms late.
const LATE_MS = 100;
// Scripts may block the thread several times in a row. Timers of hidden pages are always late.
const MOST = { seen: 3, hidden: 1 };

/** Whether a verdict that is `late` by some ms must wait, after it had to do so `times` times. */
export function isPutOff(late: number, times: number, isHidden: boolean): boolean {
  return late > LATE_MS && times < (isHidden ? MOST.hidden : MOST.seen);
}

/** Call `judge` in `ms`, or later if that is late. Returns what calls it off. */
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

/** What `ask` finds; its signal says to give up after `ms`. */
export async function within<Found>(ms: number, ask: (signal: AbortSignal) => Promise<Found>): Promise<Found> {
  const patience = new AbortController();
  const callOff = judgeAfter(ms, () => patience.abort());
  try {
    return await ask(patience.signal);
  } finally {
    callOff();
  }
}
