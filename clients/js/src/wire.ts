/** The messages between a page and its gateway: docs/protocol.md. */

/** A page's verbs for its gateway. */
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
  /** For a ping: the answer has the limits of this connection. */
  limits?: true;
}

/** A gateway's messages: any object with a `type`. */
export interface GatewayPush {
  type: string;
  [field: string]: any;
}

/** The fields of a push of type "error". */
export interface ErrorFields {
  code: number;
  reason?: string;
  temporary?: boolean;
  topic?: string;
}

/** A push that refuses a verb, or one made here that looks like it. */
export type ErrorPush = GatewayPush & ErrorFields;

/** True if the gateway refuses a verb with this push. */
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

/** A frame as a line of a log: without tokens and bodies. */
export function lineOf(way: string, what: Verb | GatewayPush): string {
  return `${way} ${JSON.stringify(what, (name, value) => (["token", "body", "messages"].includes(name) ? "…" : value))}`;
}
