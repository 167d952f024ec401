"""Spellings that denote, or might denote, the topic of user 7 or the fabric's own topics."""

from __future__ import annotations

SPELLINGS = [
    "user.7", "user.07", "User.7", "USER.7", "user.7.", ".user.7", "user..7", " user.7", "user.7 ",
    "user.7\n", "user.7\0", "user.７", "user.\u0667", "user.*", "user.#", "#", "*.7", "user",
    "user/7", "user%2E7", "user%2e7", "user\u00ad.7", "user.42.7", "user.7.42", "user.42,user.7",
    "user.42 user.7", "_fabric.revoked", "_fabric.mark", "_fabric.tick.oregon",
]  # fmt: skip
