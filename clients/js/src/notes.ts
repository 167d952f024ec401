/**
 * Notes: the messages between tabs and the connection that they share, over a BroadcastChannel or by a call.
 *
 * Tabs of one site may run different versions of this library: the name of a note (`t`) and its fields never change.
 * Added fields may be missing in a note of an older version.
 */

import type { FabricError, Login, Logout, State } from "./api.ts";
import type { GatewayPush, ErrorFields, Verb } from "./wire.ts";

/** The interest of a subscription. Its key is "tab/number". */
export interface Interest {
  key: string;
  topic: string;
  position: string | null;
  rewind?: number | string | null;
}

/**
 * From a tab to the connection. "hello": all that the tab follows, whether it has a token to offer, and
 * the browser's last login as far as it knows; "token" brings one, or null; "look" asks whether the
 * connection is alive, "bye" reports that the tab is gone.
 */
export type ToConnection =
  | { t: "hello"; interests: Interest[]; token: boolean; login?: string | null }
  | { t: "follow"; interest: Interest }
  | { t: "leave"; key: string }
  | { t: "ask"; key: string; verb: Verb }
  | { t: "token"; token: unknown; question?: number }
  | { t: "logout" }
  | { t: "look" }
  | { t: "bye"; tab: string };

/** From the connection to its tabs. `keys` names the addressed subscriptions; null, from older versions, means all of the topic. "left": these are followed no longer; "token": the browser is logged in with this one. */
export type ToTabs =
  | { t: "state"; state: State["state"]; details: Details }
  | { t: "login"; user: string; expires_at: number | null }
  | ({ t: "logout" } & Logout)
  | { t: "token"; token: string }
  | { t: "error"; error: ErrorFields }
  | { t: "token?"; question?: number }
  | { t: "answer"; key: string; push: GatewayPush }
  | { t: "left"; keys: string[] }
  | { t: "push"; push: GatewayPush; keys: string[] | null }
  | ({ t: "subscribed" } & Subscribed)
  | { t: "refused"; topic: string; keys: string[] | null; error: ErrorFields };

/** A topic is served from `position` on; `isNews`: it is reported to pages. */
export interface Subscribed {
  topic: string;
  keys: string[] | null;
  recovered: boolean;
  resumed: boolean;
  position: string | null;
  isNews: boolean;
}

/** From the tab with the connection to all others: it is new, or still there. */
export type Lead = { t: "lead" } | { t: "here" };

/** The fields of `state` events beside the state. */
export type Details = Omit<State, "state" | "tab" | "transport"> & { transport?: string };

/** The receivers of a connection's output: verbs to the gateway, notes to the tabs. */
export interface Output {
  send: (verb: Verb) => void;
  notify: (note: ToTabs) => void;
}

/** The events for a page. */
export interface Events {
  state: State;
  login: Login;
  logout: Logout;
  error: FabricError;
}

/** One function for each kind of note. */
export type Handlers<Notes extends { t: string }, Rest extends unknown[] = []> = {
  [T in Notes["t"]]: (note: Extract<Notes, { t: T }>, ...rest: Rest) => void;
};

/** Call the handler of this kind of note; a note of a newer version may have none. */
export function dispatch<Notes extends { t: string }, Rest extends unknown[]>(
  handlers: Handlers<Notes, Rest>,
  note: Notes,
  ...rest: Rest
): void {
  handlers[note.t as Notes["t"]]?.(note as Extract<Notes, { t: Notes["t"] }>, ...rest);
}
