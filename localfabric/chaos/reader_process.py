"""The parent's side of the process of a run's readers (``crowd``)."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import IO, Final

import orjson

from localfabric.chaos.delivery_record import DeliveryRecord
from localfabric.chaos.reading import ReaderPlan, read_line
from newsfabric.errors import WorldError

_READY_WITHIN: Final = 90.0
_LINE_LIMIT: Final = 1 << 20


def _first_line(run: str, seed: int, plans: Sequence[ReaderPlan]) -> bytes:
    document = {"run": run, "seed": seed, "plans": [dataclasses.asdict(plan) for plan in plans]}
    return orjson.dumps(document) + b"\n"


class ReaderProcess:
    """The readers' process, whose lines are entered into the record."""

    def __init__(
        self, process: asyncio.subprocess.Process, record: DeliveryRecord, log: IO[str]
    ) -> None:
        self._process = process
        self._record = record
        self._log = log
        self._ready = asyncio.Event()
        self._ended = False
        self._began: float | None = None
        # Lines from before the run began.
        self._early: list[str] = []

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        plans: Sequence[ReaderPlan],
        record: DeliveryRecord,
        log: IO[str],
        *,
        run: str,
        seed: int,
    ) -> AsyncGenerator[ReaderProcess]:
        """Start the process; it ends with the block."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "localfabric.chaos.crowd"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            # Ctrl-C is for the parent: the readers end with their stdin.
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(_first_line(run, seed, plans))
        readers = cls(process, record, log)
        taking = asyncio.create_task(readers._read_lines())
        try:
            yield readers
        finally:
            process.stdin.close()
            await process.wait()
            await taking

    async def ready(self) -> None:
        """Return when every reader is subscribed; WorldError if they aren't in time."""
        try:
            async with asyncio.timeout(_READY_WITHIN):
                await self._ready.wait()
        except TimeoutError as exc:
            raise WorldError(
                f"not all readers were subscribed within {_READY_WITHIN:.0f} s"
            ) from exc

    def begin(self, at: float) -> None:
        """Begin the run at ``at``; its times count from then."""
        self._began = at
        for text in self._early:
            read_line(text, self._record, at)
        self._early.clear()

    def call_back(self) -> None:
        """Call the absent readers back."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    def check(self) -> None:
        """WorldError if the process has died: then missing messages mean nothing."""
        if self._ended:
            raise WorldError("the process of the readers has died")

    async def _read_lines(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if b"\tready\t" in line:
                self._ready.set()
            text = line.decode()
            self._log.write(text)
            if self._began is None:
                self._early.append(text)
            else:
                read_line(text, self._record, self._began)
        self._ended = True
