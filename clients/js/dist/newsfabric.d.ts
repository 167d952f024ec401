/** newsfabric: news topics of a fabric in a web page. See README.md. */
/** Follow topics of the fabric with these endpoints. Throws for bad options, never for network errors. */
export declare function connect(options: ConnectOptions): Fabric;

/** A message, as its publisher sent it and the fabric carried it. */
export interface Message<Body = unknown> {
    type: "message";
    topic: string;
    /** Sorts roughly by arrival in the fabric. Another region, and the publisher's receipt, may have another id: see `identity`. */
    id: string;
    /** Identifies the message: the same for every copy and repeat, in every region, as in the publisher's receipt. Compare this. */
    identity: string;
    /** Groups the versions of one story. */
    key: string | null;
    version: number | null;
    /** ms since the epoch, by the publisher's clock. */
    published: number;
    /** The region that routed the copy that arrived first; each region routes one of a gold message. */
    origin: string;
    class: string;
    position: string | null;
    body: Body;
}
/** An action of one of a user's devices on a message of the mailbox. */
export interface Mark {
    topic: string;
    /** May be that of another copy of the message: compare `identity`. */
    id: string;
    /** The message's topic. */
    identity: string;
    mark: "ack" | "read" | "dismiss";
    /** ms since the epoch. */
    at: number;
}
export interface SubscribeOptions<Body = unknown> {
    /** A position of an earlier subscription: get the messages after it. */
    since?: string | null;
    /** First the newest messages, by number or by age: `20`, `"5m"`, `"2h"`. */
    rewind?: number | string | null;
    /** Called once for each message, however often it arrives. */
    onMessage?: (message: Message<Body>) => void;
    /**
     * The same by the list: messages that are replayed when the topic is subscribed, at first and after each reconnect,
     * are one list, oldest first; live messages are lists of one.
     */
    onMessages?: (messages: Message<Body>[]) => void;
    /** Messages may be missing: read the topic's content anew, or tell the reader. */
    onGap?: (gap: {
        topic: string;
    }) => void;
    /**
     * The gateway serves the topic, at first and after each reconnect. `resumed`: from the former
     * position; `recovered`: then no message is missing.
     */
    onSubscribed?: (how: {
        topic: string;
        resumed: boolean;
        recovered: boolean;
    }) => void;
    /** For mailboxes (`user.<id>`): a message was acknowledged, read or dismissed. */
    onMark?: (mark: Mark) => void;
    /** The gateway refuses the topic. Without this handler it is an `error` event. */
    onError?: (error: FabricError) => void;
}
export interface Subscription {
    readonly topic: string;
    /** Opaque; good for `since`, in any region. Null before the topic is served. */
    readonly position: string | null;
    /** No handler is called any more from now on. Resolves when the gateway has answered, or if there is none. */
    unsubscribe(): Promise<void>;
}
/** A refusal. `code` is one of docs/protocol.md, or 0 from the page itself: it has closed its connection, asked for another login, or named a URL that is no endpoints.json. */
export declare class FabricError extends Error {
    readonly code: number;
    /** A repeat may work later. */
    readonly temporary: boolean;
    readonly topic?: string;
}
export interface State {
    /**
     * `finding` asks regions for gateways; `waiting` tries again in `wait` ms; `stopped` doesn't, because
     * of the gateway (`reason`, `code`) or the page.
     */
    state: "idle" | "finding" | "connecting" | "open" | "waiting" | "stopped";
    region?: string;
    transport?: Transport;
    /** The URL of the gateway. */
    gateway?: string;
    /** The other regions. */
    alternates?: {
        region: string;
        url: string;
    }[];
    wait?: number;
    reason?: string;
    code?: number;
    /** The user who is logged in. */
    user?: string | null;
    /** True if this tab has the connection; false if it shares that of another tab. */
    tab?: "alone" | "leader" | "follower";
}
export interface Login {
    user: string;
    /** ms since the epoch; null if the token doesn't expire. */
    expiresAt: number | null;
}
/** A part of a topic's past. */
export interface Page {
    messages: Message[];
    more: boolean;
    /** Begin of the next page; valid for `since`, too. */
    position: string;
    /** True if no message is missing between the requested position and this one. */
    recovered: boolean;
}
/** Since the page was loaded. */
export interface Statistics {
    /** Connections that were open, of this tab or of the one whose connection it shares, and the number of lost ones. */
    connections: number;
    losses: number;
    /** Messages passed to handlers, dropped copies, and reported gaps. */
    messages: number;
    repeats: number;
    gaps: number;
}
/** A login has ended, in all tabs. */
export interface Logout {
    user: string;
    /** The page's `logout()`, or the gateway's reason. */
    reason: string;
    /** 4001: revoked, or refused too often; 4202: the token expired; 0: the page itself. */
    code: number;
}
export type Token = string | (() => string | Promise<string>);
export type Transport = "websocket" | "xhr-streaming" | "eventsource" | "iframe-eventsource" | "xhr-polling" | "iframe-xhr-polling";
export interface ConnectOptions {
    /** URL of an endpoints.json, or of several regions', the nearest first. It leads to the others. */
    endpoints: string | string[];
    /** Logs in with it on each connection; a function is called again when a token expires. */
    token?: Token | null;
    /** The transports that may be used; default: all. */
    transports?: Transport[];
    /** One connection for all tabs of this origin. Default: true. */
    share?: boolean;
    /** ms of silence after which the gateway is asked for a sign of life, in visible pages and in others. */
    heartbeat?: {
        visible?: number;
        hidden?: number;
    };
    /** sockjs-client, for networks without WebSocket: its URL, or a function that returns its constructor. Default: the gateway's. */
    sockjs?: string | (() => unknown);
    /**
     * The constructor of a WebSocket, for readers without a browser: Node's own (22 and later), or that of a package.
     * Without it, and without a browser, as on a server that renders pages, the library does nothing.
     */
    WebSocket?: new (url: string) => unknown;
    /** Log the traffic of this tab's connection, without tokens and bodies: to the console, or to a function. */
    debug?: boolean | ((line: string) => void);
}
export interface Fabric {
    /** The state of the last `state` event. */
    readonly state: State;
    readonly statistics: Statistics;
    subscribe<Body = unknown>(topic: string, options?: SubscribeOptions<Body>): Subscription;
    /**
     * Log in, or log in again after a refusal; all tabs, for as long as one of them exists. Another user is logged out
     * first. Rejects with a FabricError; if that is `temporary` the library tries again by itself, and the `login` event
     * reports success.
     */
    login(token: Token): Promise<Login>;
    /**
     * Log out, in all tabs, and continue on a new connection. Topics that need a login are refused from then on, the
     * others continue from their positions.
     */
    logout(): void;
    /** Continue with a newer token. Unnecessary where `token` is a function. */
    refresh(token?: Token): Promise<Login>;
    /** The newest messages of a topic, older than the one with the id `before`, oldest first. */
    history(topic: string, options?: {
        limit?: number;
        before?: string;
    }): Promise<{
        messages: Message[];
        more: boolean;
    }>;
    /**
     * The messages after a position, page by page: while there is `more`, ask again after the page's `position`. `limit`
     * is at most 1,000. The connected gateway is asked; if it can't answer, or there is none, the frontdesks whose
     * `endpoints` were given.
     */
    history(topic: string, options: {
        limit?: number;
        after: string;
    }): Promise<Page>;
    /**
     * The device has the message. This and the two below resolve when the mark is written, for a page that follows the
     * mailbox, and reject with a `temporary` error when it may not be; for any other page they resolve when it is on its
     * way, where it may be lost.
     */
    ack(message: {
        topic: string;
        id: string;
    }): Promise<void>;
    /** The user has read the message. */
    read(message: {
        topic: string;
        id: string;
    }): Promise<void>;
    /** The user has dismissed the message, on all devices. */
    dismiss(message: {
        topic: string;
        id: string;
    }): Promise<void>;
    /** Returns a function that removes the handler. */
    on(event: "state", handler: (state: State) => void): () => void;
    on(event: "login", handler: (login: Login) => void): () => void;
    on(event: "logout", handler: (logout: Logout) => void): () => void;
    on(event: "error", handler: (error: FabricError) => void): () => void;
    close(): void;
}
/** The transports, in the order of tries. WebSocket is the browser's, the others are sockjs-client's. */
export declare const TRANSPORTS: Transport[];

/** The plain script newsfabric.js makes this global. */
export as namespace newsfabric;
