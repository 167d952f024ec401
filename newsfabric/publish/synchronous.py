"""The publisher for programs without asyncio: the asynchronous one on a thread of its own.

Any number of threads may use it. Make it after a fork, not before.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Sequence
from typing import Any, Self, Unpack

from newsfabric.publish.asynchronous import WINDOW, AsyncPublisher
from newsfabric.publish.message import Options, Published


class Publisher:
    """A publisher as :class:`AsyncPublisher`, with the same arguments. Close it."""

    def __init__(
        self, regions: Sequence[str], *, app_id: str, window: int = WINDOW, **settings: Any
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._window = window
        self._room = threading.BoundedSemaphore(window)
        # Only one thread closes; it sets this when it has all of the room.
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"publisher {app_id}", daemon=True
        )
        self._thread.start()
        opening = AsyncPublisher.open(regions, app_id=app_id, window=window, **settings)
        try:
            self._publisher = self._run(opening).result()
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, topic: str, body: Any, **options: Unpack[Options]) -> Published:
        """Publish, and return when the message is routed; see :meth:`AsyncPublisher.publish`."""
        return self.send(topic, body, **options).result()

    def send(
        self, topic: str, body: Any, **options: Unpack[Options]
    ) -> concurrent.futures.Future[Published]:
        """Begin to publish; the future has the result or the error of :meth:`publish`.

        Waits while ``window`` messages are in flight. Keep the futures, or errors go unseen.
        RuntimeError once the publisher is closed.
        """
        self._room.acquire()
        if self._closed:
            self._room.release()
            raise RuntimeError("the publisher is closed")
        sending = self._run(self._publisher.publish(topic, body, **options))
        sending.add_done_callback(lambda _: self._room.release())
        return sending

    def close(self) -> None:
        """Wait for the messages in flight, then close. Later messages are refused. Idempotent."""
        with self._closing:
            if self._closed:
                return
            for _ in range(self._window):
                self._room.acquire()
            self._closed = True
            # Threads that wait to send, now or later, get an error.
            self._room.release(self._window)
            self._run(self._publisher.close()).result()
            self._stop()

    def _run(self, work: Any) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
