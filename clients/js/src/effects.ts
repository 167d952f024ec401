/** The effects of a session, which does nothing itself. */

import type { ToTabs } from "./notes.ts";
import type { Candidate } from "./regions.ts";
import type { Verb } from "./wire.ts";

/** The work that is done for a session. */
export type Effect =
  /** Ask every region for its endpoints, then call discovered(). */
  | { do: "discover" }
  /** Connect; then opened(), heard(), push() and closed(). */
  | { do: "open"; target: Candidate; transport: string }
  /** Does its SockJS answer within `ms`? Then probed(). */
  | { do: "probe"; target: Candidate; ms: number }
  | { do: "send"; verb: Verb }
  | { do: "hangup" }
  /** Tell the tabs; their notes come in through note(). */
  | { do: "note"; note: ToTabs };
