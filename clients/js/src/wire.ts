/** What goes over the wire between a page and its gateway: docs/protocol.md. */

/** What a page asks of its gateway. */
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
  /** Of a ping: the answer is to tell what this connection may say. */
  limits?: true;
}

/** What a gateway sends: anything, with a `type`. */
export interface GatewayPush {
  type: string;
  [field: string]: any;
}

/** What a push of type "error" says. */
export interface ErrorFields {
  code: number;
  reason?: string;
  temporary?: boolean;
  topic?: string;
}

/** A push that refuses something, or one of ours that looks like it. */
export type ErrorPush = GatewayPush & ErrorFields;

/** Whether the gateway refuses something with this push. */
export function isError(push: GatewayPush): push is ErrorPush {
  return push.type === "error";
}

/** `text` from a gateway as an object with a string `type`, or null. */
export function parsePush(text: string): GatewayPush | null {
  try {
    const push = JSON.parse(text);
    return typeof push?.type === "string" ? push : null;
  } catch {
    return null;
  }
}

/** `what` as a line of a log: neither tokens nor bodies. */
export function lineOf(way: string, what: Verb | GatewayPush): string {
  return `${way} ${JSON.stringify(what, (name, value) => (["token", "body", "messages"].includes(name) ? "…" : value))}`;
}
