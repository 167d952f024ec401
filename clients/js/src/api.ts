// All that a page may use but `connect()`. What this file and index.ts declare becomes newsfabric.d.ts, with its comments,
// so nothing that they export may name a type of another file.

import type { ErrorFields } from "./wire.ts";

/** A message, as its publisher sent it and the fabric carried it. */
export interface Message<Body = unknown> {
  type: "message";
  topic: string;
  /** Sorts roughly by arrival in the fabric. Another region, and the publisher's receipt, may have another one: see `identity`. */
  id: string;
  /** Which message it is: the same for every copy and repeat, in every region, as in the publisher's receipt. Compare this. */
  identity: string;
  /** Groups the versions of one story. */
  key: string | null;
  version: number | null;
  /** ms since the epoch, by the publisher's side. */
  published: number;
  /** The region that routed the copy which came here first; of a gold message each region routes one. */
  origin: string;
  class: string;
  position: string | null;
  body: Body;
}

/** What any of a user's devices has done with a message of the mailbox. */
export interface Mark {
  topic: string;
  /** May be that of another copy of the message: compare `identity`. */
  id: string;
  /** The message's. */
  identity: string;
  mark: "ack" | "read" | "dismiss";
  /** ms since the epoch. */
  at: number;
}

export interface SubscribeOptions<Body = unknown> {
  /** A position that an earlier subscription had: get what came after it. */
  since?: string | null;
  /** The newest so many messages first, or those of so long: `20`, `"5m"`, `"2h"`. */
  rewind?: number | string | null;
  /** Called once for each message, however often it arrives. */
  onMessage?: (message: Message<Body>) => void;
  /**
   * The same by the list: what is replayed when the topic is subscribed, at first and after each reconnect, comes as one, oldest
   * first; what is live as lists of one.
   */
  onMessages?: (messages: Message<Body>[]) => void;
  /** Something may be missing from what was handed over: read it anew, or tell the reader. */
  onGap?: (gap: { topic: string }) => void;
  /**
   * The gateway serves the topic, at first and after each reconnect. `resumed`: from where it was;
   * `recovered`: then nothing is missing.
   */
  onSubscribed?: (how: { topic: string; resumed: boolean; recovered: boolean }) => void;
  /** For mailboxes (`user.<id>`): something was acknowledged, read or dismissed. */
  onMark?: (mark: Mark) => void;
  /** The gateway refuses the topic. Without this it is an `error` event. */
  onError?: (error: FabricError) => void;
}

export interface Subscription {
  readonly topic: string;
  /** Opaque; good for `since`, in any region. Null before the topic is served. */
  readonly position: string | null;
  /** Nothing is called any more from now on. Resolves when the gateway has heard of it, or there is none to tell. */
  unsubscribe(): Promise<void>;
}

/** A refusal. `code` is one of docs/protocol.md, or 0 from the page itself: it has closed its connection, asked for another login, or named what is no endpoints.json. */
export class FabricError extends Error {
  readonly code: number;
  /** The same may work later. */
  readonly temporary: boolean;
  readonly topic?: string;

  /** @internal */
  constructor({ code, reason, temporary = false, topic }: ErrorFields) {
    super(reason || `error ${code}`);
    this.name = "FabricError";
    this.code = code;
    this.temporary = temporary;
    this.topic = topic;
  }
}

export interface State {
  /**
   * `finding` asks regions for gateways; `waiting` tries again in `wait` ms; `stopped` doesn't, because
   * the gateway said so (`reason`, `code`) or the page did.
   */
  state: "idle" | "finding" | "connecting" | "open" | "waiting" | "stopped";
  region?: string;
  transport?: Transport;
  /** The URL of the gateway. */
  gateway?: string;
  /** The other regions. */
  alternates?: { region: string; url: string }[];
  wait?: number;
  reason?: string;
  code?: number;
  /** Who is logged in. */
  user?: string | null;
  /** Whether this tab has the connection, or shares that of another. */
  tab?: "alone" | "leader" | "follower";
}

export interface Login {
  user: string;
  /** ms since the epoch; null if the token doesn't run out. */
  expiresAt: number | null;
}

/** A part of a topic's past. */
export interface Page {
  messages: Message[];
  more: boolean;
  /** Where the next page begins; good for `since`, too. */
  position: string;
  /** Whether nothing is missing between the position that was asked for and this one. */
  recovered: boolean;
}

/** Since the page came. */
export interface Statistics {
  /** Connections that were open, of this tab or of the one whose it shares, and how many of them were lost. */
  connections: number;
  losses: number;
  /** Messages that were handed over, copies that weren't, and gaps that were told. */
  messages: number;
  repeats: number;
  gaps: number;
}

/** A login has ended, in all tabs. */
export interface Logout {
  user: string;
  /** The page's `logout()`, or why the gateway ended it. */
  reason: string;
  /** 4001: revoked, or refused too often; 4202: the token ran out; 0: the page's own doing. */
  code: number;
}

export type Token = string | (() => string | Promise<string>);

export type Transport =
  | "websocket"
  | "xhr-streaming"
  | "eventsource"
  | "iframe-eventsource"
  | "xhr-polling"
  | "iframe-xhr-polling";

export interface ConnectOptions {
  /** URL of an endpoints.json, or of several regions', the nearest first. The others are found by it. */
  endpoints: string | string[];
  /** Logs in with it on each connection; a function is asked again when a token runs out. */
  token?: Token | null;
  /** The transports that may be used; all if not said. */
  transports?: Transport[];
  /** One connection for all tabs of this origin. True if not said. */
  share?: boolean;
  /** ms of silence after which the gateway is asked for a sign of life, in pages that are seen and in others. */
  heartbeat?: { visible?: number; hidden?: number };
  /** sockjs-client, for networks without WebSocket: its URL, or what returns its constructor. The gateway's if not said. */
  sockjs?: string | (() => unknown);
  /**
   * The constructor of a WebSocket, for readers without a browser: Node's own (22 and later), or that of a package.
   * Without it, and without a browser, as where a server renders a page, nothing is done at all.
   */
  WebSocket?: new (url: string) => unknown;
  /** Log what this tab's connection says and hears, without tokens and bodies: to the console, or to a function. */
  debug?: boolean | ((line: string) => void);
}

export interface Fabric {
  /** How things are, as the last `state` event said. */
  readonly state: State;
  readonly statistics: Statistics;
  subscribe<Body = unknown>(topic: string, options?: SubscribeOptions<Body>): Subscription;
  /**
   * Log in, or log in again after a refusal; all tabs, for as long as one of them is there. Who is logged in as somebody else is
   * logged out first. Rejects with a FabricError; where that is `temporary` it is tried again
   * unasked, and the `login` event says when it has worked.
   */
  login(token: Token): Promise<Login>;
  /**
   * Be nobody again, in all tabs, and on a connection of its own. Topics that need a login are refused from then on, the others
   * go on where they were.
   */
  logout(): void;
  /** Go on with a newer token. It isn't needed where `token` is a function. */
  refresh(token?: Token): Promise<Login>;
  /** The newest messages of a topic, older than the one with the id `before`, oldest first. */
  history(topic: string, options?: { limit?: number; before?: string }): Promise<{ messages: Message[]; more: boolean }>;
  /**
   * What came after a position, page by page: while there is `more`, ask again after the page's `position`. `limit` is at most 1,000.
   * The gateway that is connected is asked, and where that can't answer, or there is none, the frontdesks whose `endpoints` were given.
   */
  history(topic: string, options: { limit?: number; after: string }): Promise<Page>;
  /**
   * The device has it. This and the two below resolve when the mark is there, for a page that follows the mailbox, and reject
   * with a `temporary` error when it may not be; for any other page they resolve when it is on its way, where it may be lost.
   */
  ack(message: { topic: string; id: string }): Promise<void>;
  /** The user has read it. */
  read(message: { topic: string; id: string }): Promise<void>;
  /** The user wants to see it no more, on no device. */
  dismiss(message: { topic: string; id: string }): Promise<void>;
  /** Returns what takes the handler off again. */
  on(event: "state", handler: (state: State) => void): () => void;
  on(event: "login", handler: (login: Login) => void): () => void;
  on(event: "logout", handler: (logout: Logout) => void): () => void;
  on(event: "error", handler: (error: FabricError) => void): () => void;
  close(): void;
}

/** The transports, in the order in which they are tried. WebSocket is the browser's, the others are sockjs-client's. */
export const TRANSPORTS: Transport[] = [
  "websocket",
  "xhr-streaming",
  "eventsource",
  "iframe-eventsource",
  "xhr-polling",
  "iframe-xhr-polling",
];
