/** newsfabric/react: the connection, and a topic, as hooks. */
import type { Fabric, FabricError, Message, State } from "newsfabric";
/** How the connection is. Where a page is rendered, and until the browser has taken it over, `idle`. */
export declare function useConnection(fabric: Fabric): State;
/** What a component has of a topic. */
export interface TopicView<Body = unknown> {
    /** The newest first. */
    messages: Message<Body>[];
    /** Whether the gateway serves it. */
    isServed: boolean;
    /** Whether something may be missing. */
    hasGap: boolean;
    /** Why it is refused. */
    error: FabricError | null;
}
/**
 * Follows a topic as long as the component is there; none while `topic` is null. `rewind` is that of `subscribe()`; of what
 * came the newest `keep` messages are kept.
 */
export declare function useTopic<Body = unknown>(fabric: Fabric, topic: string | null, { rewind, keep }?: {
    rewind?: number | string | null;
    keep?: number;
}): TopicView<Body>;
