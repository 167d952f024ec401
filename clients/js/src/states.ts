/** The states of a connection, and what leads from one to the next. */

import type { State } from "./api.ts";

/** state → event → next state. An event that a state doesn't list changes nothing. */
export const STATES: Record<State["state"], Record<string, State["state"]>> = {
  idle: { start: "finding", stop: "stopped" },
  finding: { found: "connecting", lost: "waiting", stop: "stopped" },
  connecting: { opened: "open", lost: "waiting", stop: "stopped" },
  open: { found: "connecting", lost: "waiting", stop: "stopped" },
  waiting: { retry: "finding", stop: "stopped" },
  stopped: { start: "finding" },
};

/** The state after `event`; the same state if the table doesn't list it. */
export function nextState(state: State["state"], event: string): State["state"] {
  return STATES[state][event] ?? state;
}
