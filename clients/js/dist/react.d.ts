/** newsfabric/react: the connection, and a topic, as hooks. */
import type { Fabric, FabricError, Message, State } from "newsfabric";
/** The connection's state. On a server that renders pages, and until the browser has taken the page over, `idle`. */
export declare function useConnection(fabric: Fabric): State;
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
/**
 * Follows a topic as long as the component is mounted; none while `topic` is null. `rewind` is that of `subscribe()`;
 * the newest `keep` received messages are kept.
 */
export declare function useTopic<Body = unknown>(fabric: Fabric, topic: string | null, { rewind, keep }?: {
    rewind?: number | string | null;
    keep?: number;
}): TopicView<Body>;
