/** newsfabric/react: the connection, and a topic, as hooks. */

import { useEffect, useState, useSyncExternalStore } from "react";

import type { Fabric, FabricError, Message, State } from "./api.ts";

const IDLE: State = { state: "idle" };

/** The connection's state. On a server that renders pages, and until the browser has taken the page over, `idle`. */
export function useConnection(fabric: Fabric): State {
  return useSyncExternalStore(
    (changed) => fabric.on("state", changed),
    () => fabric.state,
    () => IDLE,
  );
}

/** A component's view of a topic. */
export interface TopicView<Body = unknown> {
  /** The newest first. */
  messages: Message<Body>[];
  /** True if the gateway serves it. */
  isServed: boolean;
  /** True if messages may be missing. */
  hasGap: boolean;
  /** The reason of a refusal. */
  error: FabricError | null;
}

const NOTHING: TopicView<any> = { messages: [], isServed: false, hasGap: false, error: null };

/**
 * Follows a topic as long as the component is mounted; none while `topic` is null. `rewind` is that of `subscribe()`;
 * the newest `keep` received messages are kept.
 */
export function useTopic<Body = unknown>(
  fabric: Fabric,
  topic: string | null,
  { rewind = null, keep = 100 }: { rewind?: number | string | null; keep?: number } = {},
): TopicView<Body> {
  const [{ of, view }, set] = useState<{ of: unknown; view: TopicView<Body> }>({ of: null, view: NOTHING });
  useEffect(() => {
    if (topic === null) return undefined;
    const change = (next: (view: TopicView<Body>) => Partial<TopicView<Body>>) =>
      set(({ of, view }) => {
        const known = of === topic ? view : NOTHING;
        return { of: topic, view: { ...known, ...next(known) } };
      });
    const { unsubscribe } = fabric.subscribe<Body>(topic, {
      rewind,
      onMessages: (messages) => change((known) => ({ messages: [...[...messages].reverse(), ...known.messages].slice(0, keep) })),
      onSubscribed: () => change(() => ({ isServed: true, error: null })),
      onGap: () => change(() => ({ hasGap: true })),
      onError: (error) => change(() => ({ isServed: false, error })),
    });
    return () => {
      unsubscribe();
      set({ of: null, view: NOTHING });
    };
  }, [fabric, topic, rewind, keep]);
  // Before the effect has run it is the view of another topic.
  return of === topic ? view : NOTHING;
}
