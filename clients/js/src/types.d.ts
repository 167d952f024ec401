/** Shapes that the parts of the library pass to each other. Pages see those of newsfabric.d.ts only. */

import type { FabricError, Login, Mark, Message, State, SubscribeOptions, Transport } from "../newsfabric";

/** A number in [0, 1). */
export type Random = () => number;

/* ---- Where to connect ---- */

/** Of its two URLs one at least is there. */
export interface Gateway {
  websocket: string | null;
  sockjs: string | null;
  weight: number;
}

/** endpoints.json, as far as it makes sense. */
export interface Endpoints {
  region: string;
  gateways: Gateway[];
  alternates: { region: string; url: string }[];
  retryMs: number;
}

/** What a region answered. `endpoints` is null where there was no usable answer, `isLate` says that it was asked after the others. */
export interface Answer {
  url: string;
  ms: number;
  isLate?: boolean;
  isIn?: boolean;
  endpoints: Endpoints | null;
}

/** A gateway to try, of the region whose endpoints.json is at `url` and came within `ms`. */
export interface Candidate {
  url: string;
  ms: number;
  region: string;
  gateway: Gateway;
}

/** What later pages know from earlier ones; it was stored where anybody may write. */
export interface Memory {
  home?: unknown;
  urls?: unknown;
}

/* ---- Sockets ---- */

export interface Closing {
  code?: number;
  reason?: string;
}

export interface SocketEvents {
  opened(transport: string): void;
  heard(): void;
  text(text: string): void;
  closed(how: Closing): void;
}

export interface Socket {
  send(text: string): void;
  close(): void;
}

/** What WebSocket and sockjs-client have in common, and what only the latter has. */
export interface AnySocket extends Socket {
  onopen: (() => void) | null;
  onmessage: ((event: { data: string }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  onheartbeat?: () => void;
  transport?: string;
}

export type SockJS = new (url: string, reserved: null, options: { transports: string[] }) => AnySocket;

/* ---- What goes over the wire: docs/protocol.md ---- */

export interface Verb {
  action: string;
  topic?: string;
  ref?: string;
  token?: unknown;
  position?: string | null;
  rewind?: number | string | null;
  id?: string;
  limit?: number;
  before?: string;
}

/** What a gateway says: anything, with a `type`. */
export interface Push {
  type: string;
  [field: string]: any;
}

/** A push of type "error", or one of ours that looks like it. */
export interface Refusal {
  code: number;
  reason?: string;
  temporary?: boolean;
  topic?: string;
}

/* ---- Between tabs and the connection that they share ---- */

/** What a subscription wants: its key is "desk/number". */
export interface Wish {
  key: string;
  topic: string;
  position: string | null;
  rewind?: number | string | null;
}

/** From a tab to the connection. */
export type Ask =
  | { t: "hello"; desk: string; wishes: Wish[]; token: boolean }
  | { t: "follow"; wish: Wish }
  | { t: "leave"; key: string }
  | { t: "ask"; key: string; verb: Verb }
  | { t: "token"; token: unknown }
  | { t: "look" }
  | { t: "bye"; desk: string };

/** From the connection to its tabs. `keys` names the subscriptions that it is for; null means all of the topic. */
export type Note =
  | { t: "state"; state: State["state"]; details: Details }
  | { t: "login"; user: string; expires_at: number | null }
  | { t: "error"; error: Refusal }
  | { t: "token?" }
  | { t: "answer"; key: string; push: Push }
  | { t: "push"; push: Push; keys: string[] | null }
  | ({ t: "subscribed" } & Served)
  | { t: "refused"; topic: string; keys: string[] | null; error: Refusal };

/** A topic is served from `position` on; `isNews` says whether pages are told. */
export interface Served {
  topic: string;
  keys: string[] | null;
  recovered: boolean;
  resumed: boolean;
  position: string | null;
  isNews: boolean;
}

/** From one tab to all: who leads has come, or is there. */
export type Lead = { t: "lead" } | { t: "here" };

/** One function for each kind of note. */
export type Handlers<Notes extends { t: string }, Rest extends unknown[] = []> = {
  [T in Notes["t"]]?: (note: Extract<Notes, { t: T }>, ...rest: Rest) => void;
};

/** What `state` events say beside the state. */
export type Details = Omit<State, "state" | "tab" | "transport"> & { transport?: string };

/** What a page may hear. */
export interface Events {
  state: State;
  login: Login;
  error: FabricError;
}

export type Tell = <Event extends keyof Events>(event: Event, value: Events[Event]) => void;

export type PageHandlers = Omit<SubscribeOptions<any>, "since" | "rewind">;

export type { FabricError, Mark, Message, State, SubscribeOptions, Transport };

/* ---- What a session has done for it ---- */

export type Effect =
  | { do: "survey" }
  | { do: "open"; target: Candidate; transport: string }
  | { do: "probe"; target: Candidate; ms: number }
  | { do: "send"; verb: Verb }
  | { do: "hangup" }
  | { do: "note"; note: Note };
