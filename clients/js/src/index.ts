/** newsfabric: news topics of a fabric in a web page. See README.md. */

import type { ConnectOptions, Fabric } from "./api.ts";
import { PageFabric } from "./fabric.ts";

export * from "./api.ts";

/** Follow topics of the fabric with these endpoints. Throws for bad options, never for network errors. */
export function connect(options: ConnectOptions): Fabric {
  return new PageFabric(options);
}
