/** Checks a page's options: unknown options and impossible values are refused, with advice. Pure. */

import { TRANSPORTS } from "./api.ts";
import type { ConnectOptions, SubscribeOptions } from "./api.ts";

type Kind = (value: any) => boolean;

const isFunction: Kind = (value) => typeof value === "function";
const isText: Kind = (value) => typeof value === "string";
const isMs: Kind = (value) => Number.isFinite(value) && value > 0;

/** option → its rule in words, and the check of a value. */
type Table<Options> = Record<keyof Options & string, [string, Kind]>;

const CONNECT: Table<ConnectOptions> = {
  endpoints: ["the URL of an endpoints.json, or a list of some", (value) => Boolean(value?.length) && [value].flat().every(isText)],
  token: ["a string, or a function that returns one", (value) => isText(value) || isFunction(value)],
  transports: [`a list of some of ${TRANSPORTS.join(", ")}`, (value) => Boolean(value?.length) && value.every((name: any) => TRANSPORTS.includes(name))],
  share: ["true or false", (value) => typeof value === "boolean"],
  heartbeat: ["{visible, hidden}, in ms", (value) => Object.entries(value).every(([name, ms]) => ["visible", "hidden"].includes(name) && isMs(ms))],
  sockjs: ["a URL, or a function that returns sockjs-client's constructor", (value) => isText(value) || isFunction(value)],
  WebSocket: ["a constructor like that of browsers", isFunction],
  debug: ["true, false or a function that takes lines", (value) => typeof value === "boolean" || isFunction(value)],
};

const HANDLER: [string, Kind] = ["a function", isFunction];
const SUBSCRIBE: Table<SubscribeOptions> = {
  since: ["the position of a subscription", isText],
  rewind: ["a number of messages, or how long ago, like \"5m\"", (value) => (Number.isInteger(value) && value > 0) || (isText(value) && /^\d+[smhd]$/.test(value))],
  onMessage: HANDLER,
  onMessages: HANDLER,
  onGap: HANDLER,
  onSubscribed: HANDLER,
  onMark: HANDLER,
  onError: HANDLER,
};

/** Throws a TypeError for options that `connect()` refuses. */
export function checkConnect(options: ConnectOptions): void {
  if (!options?.endpoints?.length) throw new TypeError("endpoints: the URL of an endpoints.json");
  check("connect", CONNECT, options);
}

/** The same for `subscribe()`. */
export function checkSubscribe(topic: string, options: SubscribeOptions<any>): void {
  checkTopic(topic);
  check("subscribe", SUBSCRIBE, options);
}

/** The same for a topic. */
export function checkTopic(topic: string): void {
  if (typeof topic !== "string") throw new TypeError("a topic is a string");
  if (/[*#]/.test(topic)) throw new TypeError(`${topic}: readers follow topics, not patterns. Subscribe to each by its name; all of them share a connection`);
}

function check<Options extends object>(what: string, table: Table<Options>, options: Options): void {
  for (const [name, value] of Object.entries(options)) {
    const row = Object.hasOwn(table, name) && table[name as keyof Options & string];
    if (!row) throw new TypeError(`${what}: no option "${name}"; there are ${Object.keys(table).join(", ")}`);
    const [words, isKind] = row;
    if (value !== undefined && value !== null && !isKind(value)) throw new TypeError(`${what}: "${name}" is ${words}`);
  }
}
