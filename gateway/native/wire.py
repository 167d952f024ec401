"""What both directions of the control protocol share; docs/dataplane-protocol.md defines it."""

from __future__ import annotations

import struct
from typing import Final

VERSION: Final = 5
# The longest message, without its length.
MAX_MESSAGE: Final = 16 << 20
# The longest blob that the data plane keeps for us.
MAX_BLOB: Final = 1 << 20

# thread u16, slot u32, generation u32: what it means is the data plane's business.
Connection = bytes
CONNECTION_BYTES: Final = 10

U8: Final = struct.Struct("<B")
U16: Final = struct.Struct("<H")
U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")


class WireError(ValueError):
    """What came, or was to be sent, isn't the protocol."""
