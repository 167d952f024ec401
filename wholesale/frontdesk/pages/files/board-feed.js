/**
 * The source of the board's documents: one request, then a stream; another request when it is lost.
 *
 * The first request gets two facts that EventSource doesn't give: that a login is needed, and the reason
 * for a missing answer. A stream that is silent for five seconds counts as lost, since a broken
 * connection may be silent.
 */

import { readDocument } from "./board-document.js";
import { retryMs } from "./board-words.js";

/** @import {BoardDocument} from "./board-document.js" */

const ANSWER_MS = 5000;
const SILENCE_MS = 5000;

/** @typedef {{state: "asking" | "live" | "lost" | "locked", reason: string, retryAt: number}} Link retryAt: of performance.now() */

/** The header with the name of the logged-in operator. */
const OPERATOR = "Newsfabric-Operator";

export class BoardFeed {
  /**
   * @param {(document: BoardDocument, anew: boolean) => void} onDocument anew: with all events there are
   * @param {(link: Link) => void} onLink
   */
  constructor(onDocument, onLink) {
    this.onDocument = onDocument;
    this.onLink = onLink;
    this.attempt = 0;
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.isAsking = false;
    this.isLocked = false;
    /** The logged-in operator; empty where no login is needed. */
    this.operator = "";
  }

  start() {
    addEventListener("online", () => this.again());
    document.addEventListener("visibilitychange", () => document.hidden || this.again());
    void this.#ask();
  }

  /** Try now, unless there is nothing to mend. */
  again() {
    if (this.source || this.isAsking || this.isLocked) return;
    void this.#ask();
  }

  /** @param {string} token @returns {Promise<boolean>} whether it is an operator's; throws if nobody answers */
  async login(token) {
    const body = new URLSearchParams({ token });
    const answer = await fetch("/board/login", { method: "POST", body, signal: AbortSignal.timeout(ANSWER_MS) });
    if (answer.ok) {
      this.isLocked = false;
      void this.#ask();
    } else if (answer.status !== 403) {
      throw new Error(`the frontdesk answered ${answer.status}`);
    }
    return answer.ok;
  }

  /** Has the browser forget the login; throws if nobody answers. */
  async logout() {
    const answer = await fetch("/board/logout", { method: "POST", signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) throw new Error(`the frontdesk answered ${answer.status}`);
  }

  async #ask() {
    clearTimeout(this.timer);
    this.isAsking = true;
    try {
      const answer = await fetch("/board.json", { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
      if (answer.status === 401 || answer.status === 403) return this.#lock();
      if (!answer.ok) return this.#lose(`it answered ${answer.status}`);
      this.operator = answer.headers.get(OPERATOR) ?? "";
      this.onDocument(readDocument(await answer.json()), true);
      this.#follow();
    } catch (error) {
      this.#lose(reasonOf(error));
    } finally {
      this.isAsking = false;
    }
  }

  #lock() {
    this.isLocked = true;
    this.onLink({ state: "locked", reason: "", retryAt: 0 });
  }

  #follow() {
    const source = new EventSource("/board/stream");
    this.source = source;
    this.#expect();
    source.addEventListener("update", (event) => {
      try {
        this.onDocument(readDocument(JSON.parse(event.data)), false);
      } catch (error) {
        return this.#lose(reasonOf(error));
      }
      this.attempt = 0;
      this.#expect();
      return undefined;
    });
    source.addEventListener("error", () => this.source === source && this.#lose("the stream broke"));
    this.onLink({ state: "live", reason: "", retryAt: 0 });
  }

  #expect() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#lose("it says nothing"), SILENCE_MS);
  }

  /** @param {string} reason */
  #lose(reason) {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
    const wait = retryMs(this.attempt++, Math.random());
    this.timer = setTimeout(() => this.#ask(), wait);
    this.onLink({ state: "lost", reason, retryAt: performance.now() + wait });
  }
}

/** @param {unknown} error @returns {string} */
function reasonOf(error) {
  if (error instanceof DOMException && error.name === "TimeoutError") return "it doesn't answer";
  if (error instanceof SyntaxError) return "its answer is no JSON";
  // The text of fetch for a refused connection differs between browsers.
  return error instanceof TypeError && error.message.startsWith("not ") ? "its answer isn't a board's" : "it can't be reached";
}
