/**
 * Sockets of a browser behind one face: WebSocket, or sockjs-client, which is loaded when it is needed.
 *
 * `open` returns a socket {send(text), close()} and calls `on.opened(transport)`, `on.heard()`, `on.text(text)`,
 * `on.closed({code, reason})`; after `close()` it calls nothing any more.
 */

/** @import { AnySocket, Gateway, Socket, SocketEvents, SockJS } from "./types" */

/**
 * WebSocket is ours; the others, in the order in which they are tried where it fails, are sockjs-client's.
 * @satisfies {import("./types").Transport[]}
 */
export const TRANSPORTS = ["websocket", "xhr-streaming", "eventsource", "iframe-eventsource", "xhr-polling", "iframe-xhr-polling"];

/**
 * @param {Gateway} gateway
 * @param {SocketEvents} on
 */
export function openWebSocket({ websocket }, on) {
  const socket = new WebSocket(/** @type {string} */ (websocket));
  return listen(/** @type {AnySocket} */ (socket), on, () => "websocket");
}

/**
 * `load` returns sockjs-client's constructor, or a promise of it.
 * @param {Gateway} gateway
 * @param {SocketEvents} on
 * @param {{load: (gateway: string) => SockJS | Promise<SockJS>, transports: string[]}} how
 * @returns {Socket}
 */
export function openSockJS(gateway, on, { load, transports }) {
  const sockjs = /** @type {string} */ (gateway.sockjs);
  /** @type {Socket | null} */
  let inner = null;
  let isClosed = false;
  const begin = async () => {
    try {
      const SockJS = await load(sockjs);
      if (isClosed) return;
      const socket = new SockJS(sockjs, null, { transports });
      socket.onheartbeat = () => isClosed || on.heard();
      inner = listen(socket, on, () => /** @type {string} */ (socket.transport));
    } catch (thrown) {
      const error = /** @type {Error} */ (thrown);
      if (!isClosed) on.closed({ code: 1006, reason: `sockjs-client: ${error.message}` });
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

/**
 * @param {AnySocket} socket
 * @param {SocketEvents} on
 * @param {() => string} transport
 * @returns {Socket}
 */
function listen(socket, on, transport) {
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

/**
 * Whether the gateway's SockJS answers over HTTP within `ms`.
 * @param {Gateway} gateway
 * @param {number} ms
 */
export async function probe({ sockjs }, ms) {
  try {
    const answer = await fetch(`${sockjs}/info`, { cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(ms) });
    return answer.ok;
  } catch {
    return false;
  }
}

/**
 * The constructor of sockjs-client: the page's own if it has one, else by a script from `url` or the gateway.
 * @param {import("../newsfabric").ConnectOptions["sockjs"]} url
 * @param {string} gateway
 * @returns {Promise<SockJS>}
 */
export async function loadSockJS(url, gateway) {
  const page = /** @type {{SockJS: SockJS}} */ (/** @type {unknown} */ (globalThis));
  if (typeof url === "function") return /** @type {SockJS} */ (await url());
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
