/**
 * One interface for the sockets of a browser: WebSocket, or sockjs-client, which is loaded on demand.
 *
 * A function that opens one returns a `Socket` and calls the functions of `SocketEvents`; after `close()` it calls none
 * of them any more.
 */

import type { ConnectOptions } from "./api.ts";
import { BROKEN } from "./closing.ts";
import type { GatewayUrls } from "./regions.ts";
import { within } from "./verdicts.ts";

export interface SocketEvents {
  opened(transport: string): void;
  /** Any data has arrived. */
  heard(): void;
  text(text: string): void;
  closed(how: { code?: number; reason?: string }): void;
}

export interface Socket {
  send(text: string): void;
  close(): void;
}

/** The common interface of WebSocket and sockjs-client, and the latter's additions. */
interface AnySocket extends Socket {
  onopen: (() => void) | null;
  onmessage: ((event: { data: string }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  onheartbeat?: () => void;
  transport?: string;
}

/** sockjs-client's constructor. */
export type SockJS = new (url: string, reserved: null, options: { transports: string[] }) => AnySocket;

/** `Given` is another constructor than the browser's. */
export function openWebSocket({ websocket }: GatewayUrls, on: SocketEvents, Given: ConnectOptions["WebSocket"] = WebSocket): Socket {
  return listen(new Given(websocket!) as AnySocket, on, () => "websocket");
}

/** `load` returns sockjs-client's constructor, or a promise of it. */
export function openSockJS(
  { sockjs }: GatewayUrls,
  on: SocketEvents,
  { load, transports }: { load: (url: string) => SockJS | Promise<SockJS>; transports: string[] },
): Socket {
  const url = sockjs!;
  let inner: Socket | null = null;
  let isClosed = false;
  const begin = async () => {
    try {
      const SockJS = await load(url);
      if (isClosed) return;
      const socket = new SockJS(url, null, { transports });
      socket.onheartbeat = () => isClosed || on.heard();
      inner = listen(socket, on, () => socket.transport!);
    } catch (error) {
      if (!isClosed) on.closed({ code: BROKEN, reason: `sockjs-client: ${(error as Error).message}` });
    }
  };
  begin();
  return {
    send: (text) => inner?.send(text),
    close: () => {
      isClosed = true;
      inner?.close();
    },
  };
}

function listen(socket: AnySocket, on: SocketEvents, transport: () => string): Socket {
  socket.onopen = () => on.opened(transport());
  socket.onmessage = ({ data }) => on.text(data);
  socket.onclose = ({ code, reason }) => on.closed({ code, reason });
  return {
    send: (text) => socket.send(text),
    close: () => {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    },
  };
}

/** True if the gateway's SockJS answers over HTTP within `ms`. */
export async function probe({ sockjs }: GatewayUrls, ms: number): Promise<boolean> {
  try {
    const url = `${sockjs}/info`;
    return await within(ms, async (signal) => (await fetch(url, { cache: "no-store", credentials: "omit", signal })).ok);
  } catch {
    return false;
  }
}

/** The constructor of sockjs-client: the page's own if it has one, else loaded from `url` or the gateway. */
export async function loadSockJS(url: ConnectOptions["sockjs"], gateway: string): Promise<SockJS> {
  const page = globalThis as unknown as { SockJS: SockJS };
  if (typeof url === "function") return (await url()) as SockJS;
  if (page.SockJS) return page.SockJS;
  const script = document.createElement("script");
  script.src = url ?? new URL("sockjs.min.js", gateway).href;
  await new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = () => reject(new Error(`${script.src} can't be loaded`));
    document.head.append(script);
  });
  script.remove();
  return page.SockJS;
}
