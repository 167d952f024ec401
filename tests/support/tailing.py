"""``newsfabric tail`` in the background, for tests that publish after it has subscribed."""

from __future__ import annotations

import json
import threading
from typing import Any

from worlds import World


class Tail:
    """A ``newsfabric tail`` that has subscribed by the time the constructor returns."""

    def __init__(
        self, world: World, *topics: str, region: str, count: int = 1, options: tuple[str, ...] = ()
    ) -> None:
        self.process = world.start(
            *("tail", *topics, "--region", region, "--count", str(count)),
            *("--timeout", "120", "--json", *options),
        )
        self._lines: list[str] = []
        self._printed: list[str] = []
        self._subscribed = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        assert self._subscribed.wait(90), f"tail never subscribed: {self._lines}"

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)
            if "subscribed" in line:
                self._subscribed.set()

    def first(self) -> dict[str, Any]:
        """Return the first message, as soon as it is printed; call this only once."""
        assert self.process.stdout is not None
        self._printed.append(self.process.stdout.readline())
        found: dict[str, Any] = json.loads(self._printed[0])
        return found

    def messages(self) -> list[dict[str, Any]]:
        """Wait for a successful end; return all printed messages."""
        assert self.process.stdout is not None
        self._printed += self.process.stdout.read().splitlines()
        code = self.process.wait(timeout=150)
        self._listener.join(timeout=10)
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
        assert code == 0, f"tail ended with {code}: {self._lines}"
        return [json.loads(line) for line in self._printed]
