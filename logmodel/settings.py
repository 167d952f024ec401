"""The times and sizes of the model, and the shares that a run can change.

Times are the design's, in seconds. Sizes are small, so that a history of some hundred messages
reaches their edges.
"""

from __future__ import annotations

import dataclasses

from newsfabric.topology.times import TIMES

# The time until a broker has closed the connection of a frozen router.
HEARTBEAT = 30.0
# The most numbers under way above low: 4,096 in the design. A history draws its own, up to this.
WINDOW = 6
SMALLEST_WINDOW = 3
# Gateways remember for this time the messages that they gave to readers.
IDENTITY_WINDOW = TIMES.identity_ms / 1000
# Copies of one message are numbered within this time (docs/guarantees.md).
APART = TIMES.apart_ms / 1000
# A router publishes nothing that it has held for longer, and queues keep nothing for longer.
HOLD = TIMES.hold_ms / 1000
QUEUE_TTL = 150.0
# A position counts an unlisted log as seen completely if it began this long before. Six hours in
# the design; here still more than a cut and the late rows after it.
POSITION_REACH = 4500.0
# The number of messages that the memory of a topic keeps.
MEMORY_SIZE = 3
# A gateway asks another region's store for this long before it replies ``recovered: false``.
RESUME_PATIENCE = 2.0

# "a" is of a class that is published in all regions; "c" has few messages.
TOPICS = ("a", "b", "c")


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """The settings that a run can change.

    ``partial``: the share of writes that time out; each of their rows is applied, lost, or late.
    ``stray``: the share of these whose rows reach another region before their own.
    ``regions``: their number; 0: three in every fifth seed, else two.
    ``clocks``: whether clocks of routers, gateways and stores also step by hours.
    """

    partial: float = 0.1
    stray: float = 0.3
    regions: int = 0
    clocks: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.partial < 1 and 0 <= self.stray <= 1):
            raise ValueError("--partial must be in 0..1 (less than 1), --stray in 0..1")
        if self.regions not in (0, 2, 3):
            raise ValueError("--regions must be 2 or 3")


DEFAULT = Profile()
PARTIAL = Profile(partial=0.6)
THREE_REGIONS = Profile(regions=3)
WRONG_CLOCKS = Profile(partial=0.3, clocks=True)
HARDEST = Profile(partial=0.8, stray=1.0, regions=3)
