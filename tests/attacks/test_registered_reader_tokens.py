"""A registered reader whose user was locked out, and who has kept the token."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from gateways import ENGINES, TABLE, opened_box
from signing import AUDIENCE, ISSUER, keys_file, token

from gateway.process.settings import TokenSettings
from newsfabric.messages.control import revocation
from newsfabric.topics import REVOKED, TopicTable

REMEMBERED = 60.0
TEN_YEARS = 10 * 365 * 86400.0


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_a_revoked_user_is_back_when_the_revocation_is_forgotten(
    engine: str, tmp_path: Path
) -> None:
    table = TopicTable(TABLE.policies, tokens_ttl=REMEMBERED)
    settings = TokenSettings(keys=keys_file(tmp_path), audience=AUDIENCE, issuer=ISSUER)
    async with opened_box(engine, table=table, tokens=settings) as box:
        # Just longer ago than revocations are remembered.
        revoked_at = time.time() - REMEMBERED - 0.5
        ms = int(revoked_at * 1000)
        box.send_envelope(box.envelope(REVOKED, revocation("42", ms).body, ms=ms))
        box.send_envelope(
            box.envelope(REVOKED, revocation("another", int(time.time() * 1000)).body)
        )
        async with box.reader("news.breaking") as reader:
            await reader.is_up_to_date()
            assert [user for user, _ in box.gateway.core.authenticator.revocations] == ["another"]
            kept: list[dict[str, Any]] = [
                {"iat": None},
                # Not even within the leeway for clocks.
                {"iat": revoked_at - 0.1},
                {"iat": revoked_at - REMEMBERED},
            ]
            for claims in kept:
                good_for_ever = token("42", ttl=TEN_YEARS, **claims)
                answer = await reader.answer_to(action="login", token=good_for_ever)
                assert answer["type"] == "error", claims
                page = await box.request(
                    "GET", "/history?topic=user.42", Authorization=f"Bearer {good_for_ever}"
                )
                assert page.status == 401, claims
        async with box.reader() as reader:
            again = await reader.answer_to(action="login", token=token("42", ttl=TEN_YEARS))
            assert again["type"] == "logged_in"
