"""Each verb of docs/protocol.md, sent by a reader who is logged in."""

from __future__ import annotations

from pathlib import Path

from documented_verbs import VERBS
from regions import TABLE, opened_region
from signing import token

from newsfabric.store.memory import MemoryStore


async def test_each_verb_gets_the_reply_that_the_page_names(engine: str, tmp_path: Path) -> None:
    async with opened_region(engine, tmp_path, MemoryStore(TABLE)) as region:
        letter = await region.write_to("42", 1)
        values = {"topic": "user.42", "id": letter.id, "before": letter.id, "token": token("42")}
        replies = {}
        for verb in VERBS:
            async with region.device() as reader:
                await reader.send_verb(**verb.with_values(values), ref="r")
                # The push of a mark may arrive before the reply.
                while (push := await reader.hear()).get("ref") != "r":
                    pass
                replies[verb.action] = push["type"]
    assert replies == {verb.action: verb.reply for verb in VERBS}
