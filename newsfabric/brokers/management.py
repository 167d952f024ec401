"""A small asyncio client for one broker's management HTTP API.

Only the requests of the fabric: list, put and delete exchanges, queues, bindings and shovels,
shovels' states, alarms, and reading a queue without consuming. It needs no metrics of the API's
own: brokers collect none (``management_metrics_collection`` is refused). Every failure is a
:class:`ManagementError`: no reply (status 0), an error, or a reply that is too large or malformed.

Puts and deletes are idempotent: deleting a missing object is no error.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Mapping
from http.client import responses
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, quote_plus, urlencode

import orjson

from newsfabric.errors import ManagementError
from newsfabric.http.kept_connections import KeptConnections, Reply
from newsfabric.numbers import is_whole
from newsfabric.settings import Credentials
from newsfabric.tls import ClientTls
from newsfabric.topology import VHOST, Binding, Exchange

# The list of all queues that a broker may have (MAX_QUEUES) has about 2 MiB; a broker that sends
# more than this is broken.
MAX_ANSWER_BYTES: Final = 16 << 20
# The most messages, and bytes of each, that one call of peek returns.
PEEK_MESSAGES: Final = 100
PEEK_BYTES: Final = 50_000
# States of a running shovel: from RabbitMQ 3.11 on also whether its destination makes it wait.
_RUN: Final = frozenset({"running", "flow", "blocked"})
# The status of a failed health check, and its names for the alarms that matter here.
_RAISED: Final = 503
_ALARMS: Final = {"memory": "memory", "disk": "disk space"}

_VHOST: Final = quote(VHOST, safe="")
_QUEUE_COLUMNS: Final = "columns=name,arguments,exclusive"
# RabbitMQ returns at most 500 per page.
_PAGE_QUEUES: Final = 500
_MAX_PAGES: Final = 100


@dataclasses.dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as a broker lists it; ``exclusive``: owned by one connection."""

    name: str
    arguments: Mapping[str, Any]
    exclusive: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ShovelState:
    """A shovel's state as its broker reports it: ``starting``, ``running`` or ``terminated``.

    ``reason`` is why it terminated, without URIs. "running" doesn't prove that messages move: it
    includes ``flow`` and ``blocked``, which RabbitMQ 3.10 doesn't report.
    """

    name: str
    state: str
    reason: str = ""


class Management:
    """A client of one node's management API. Use as an async context manager, or :meth:`close` it.

    It keeps four connections at most, each for five minutes at most. Each call raises
    ManagementError: after ``timeout`` seconds, or for an error. At ``https://`` the node must show
    a certificate by an authority of ``credentials``.
    """

    def __init__(self, url: str, credentials: Credentials, *, timeout: float = 5.0) -> None:
        self.url = url.rstrip("/")
        login = f"{credentials.username}:{credentials.password}".encode()
        self._http = KeptConnections(
            self.url,
            timeout=timeout,
            max_bytes=MAX_ANSWER_BYTES,
            headers={
                "Authorization": f"Basic {base64.b64encode(login).decode()}",
                "Content-Type": "application/json",
            },
            tls=ClientTls(credentials.tls) if self.url.startswith("https://") else None,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    async def overview(self) -> dict[str, Any]:
        """Return ``/api/overview``: version, totals."""
        return _object(await self._get("/overview"))

    async def queue_total(self) -> int:
        """Return the number of queues, exclusive ones too; ManagementError if it is missing."""
        total = _object((await self.overview()).get("object_totals")).get("queues")
        if not is_whole(total, 0, 1 << 53):
            raise ManagementError("the management API doesn't report the number of queues")
        return int(total)

    async def alarm(self) -> str:
        """Return why the broker takes no messages: ``memory`` or ``disk``; empty while it does."""
        answer = await self._send("GET", "/health/checks/local-alarms", also=_RAISED)
        alarms = _objects(_object(_parse(answer)).get("alarms", []))
        raised = {str(entry.get("resource")) for entry in alarms}
        return next((name for name, resource in _ALARMS.items() if resource in raised), "")

    async def exchanges(self) -> dict[str, str]:
        """Return the types of the exchanges by name."""
        entries = _objects(await self._get(f"/exchanges/{_VHOST}?columns=name,type"))
        return {_text(entry, "name"): _text(entry, "type") for entry in entries}

    async def put_exchange(self, exchange: Exchange) -> None:
        """Declare ``exchange``, durable; ManagementError if it exists with another type."""
        body = {"type": exchange.type, "durable": True}
        await self._send("PUT", f"/exchanges/{_VHOST}/{_quote(exchange.name)}", body)

    async def delete_exchange(self, name: str) -> None:
        """Delete an exchange with its bindings; no error if there is none."""
        await self._delete(f"/exchanges/{_VHOST}/{_quote(name)}")

    async def queues(self) -> dict[str, QueueState]:
        """Return the queues by name."""
        entries = _objects(await self._get(f"/queues/{_VHOST}?{_QUEUE_COLUMNS}"))
        return {state.name: state for state in map(_queue_state, entries)}

    async def queues_beginning(self, prefix: str) -> dict[str, QueueState]:
        """Return the queues whose names begin with ``prefix``; other queues aren't sent."""
        asked = urlencode(
            {"name": f"^{re.escape(prefix)}", "use_regex": "true", "page_size": _PAGE_QUEUES}
        )
        found: dict[str, QueueState] = {}
        page = 1
        while True:
            path = f"/queues/{_VHOST}?{_QUEUE_COLUMNS}&{asked}&page={page}"
            answer = _object(await self._get(path))
            states = map(_queue_state, _objects(answer.get("items")))
            found |= {state.name: state for state in states}
            pages = answer.get("page_count")
            if not is_whole(pages, 0, _MAX_PAGES):
                raise ManagementError("the management API doesn't report the number of pages")
            if page >= pages:
                return found
            page += 1

    async def put_queue(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Declare a durable queue; status 400 if it exists with other arguments."""
        body = {"durable": True, "arguments": dict(arguments)}
        await self._send("PUT", f"/queues/{_VHOST}/{_quote(name)}", body)

    async def delete_queue(self, name: str, *, unused: bool = False) -> None:
        """Delete a queue with its messages; no error if there is none.

        With ``unused`` only a queue without consumers; status 400 if it has one.
        """
        condition = "?if-unused=true" if unused else ""
        await self._delete(f"/queues/{_VHOST}/{_quote(name)}{condition}")

    async def bindings(self) -> set[Binding]:
        """Return the bindings of queues to exchanges, without the default exchange's."""
        columns = "source,destination,destination_type,routing_key"
        entries = _objects(await self._get(f"/bindings/{_VHOST}?columns={columns}"))
        return {
            Binding(
                _text(entry, "source"), _text(entry, "destination"), _text(entry, "routing_key")
            )
            for entry in entries
            # "" is the default exchange, to which every queue is bound implicitly.
            if _text(entry, "source") and _text(entry, "destination_type") == "queue"
        }

    async def put_binding(self, binding: Binding) -> None:
        """Bind; status 404 when queue or exchange is missing."""
        await self._send("POST", _binding_path(binding), {"routing_key": binding.key})

    async def delete_binding(self, binding: Binding) -> None:
        """Delete a binding; no error if there is none."""
        # rabbit_mgmt_format:pack_binding_props/2: the key, encoded as in a form, names the binding;
        # "~" stands for the empty key. A path encodes it once more.
        name = quote_plus(binding.key).replace("~", "%7E") if binding.key else "~"
        await self._delete(f"{_binding_path(binding)}/{_quote(name)}")

    async def shovels(self) -> dict[str, dict[str, Any]]:
        """Return the dynamic shovels' parameters by name. They hold passwords: never log them."""
        entries = _objects(await self._get(f"/parameters/shovel/{_VHOST}"))
        return {_text(entry, "name"): _object(entry.get("value")) for entry in entries}

    async def put_shovel(self, name: str, value: Mapping[str, Any]) -> None:
        """Create a shovel, or restart it with another ``value`` (topology.shovel_value)."""
        await self._send("PUT", f"/parameters/shovel/{_VHOST}/{_quote(name)}", {"value": value})

    async def delete_shovel(self, name: str) -> None:
        """Stop a shovel and delete its parameter; no error if there is none."""
        await self._delete(f"/parameters/shovel/{_VHOST}/{_quote(name)}")

    async def shovel_states(self) -> dict[str, ShovelState]:
        """Return the states that the broker reports of its shovels, by name."""
        entries = _objects(await self._get(f"/shovels/{_VHOST}"))
        return {state.name: state for state in map(_shovel_state, entries)}

    async def import_definitions(self, document: Mapping[str, Any]) -> None:
        """Add the objects in ``document``, part of a ``definitions.json``; others stay."""
        await self._send("POST", "/definitions", document)

    async def user_names(self) -> set[str]:
        """Return the names of the broker's users."""
        return {_text(entry, "name") for entry in _objects(await self._get("/users?columns=name"))}

    async def delete_user(self, name: str) -> None:
        """Delete a user; its connections are closed."""
        await self._delete(f"/users/{_quote(name)}")

    async def peek(self, queue: str, count: int = PEEK_MESSAGES) -> list[dict[str, Any]]:
        """Return up to ``count`` messages of ``queue`` and leave them there.

        They are requeued at their old places but marked as redelivered. Each has ``payload``,
        ``payload_encoding`` (``string`` or ``base64``), ``properties`` and ``routing_key``.
        """
        body = {
            "count": min(count, PEEK_MESSAGES),
            "ackmode": "ack_requeue_true",
            "encoding": "auto",
            "truncate": PEEK_BYTES,
        }
        answer = await self._send("POST", f"/queues/{_VHOST}/{_quote(queue)}/get", body)
        return _objects(_parse(answer))

    async def _get(self, path: str) -> Any:
        return _parse(await self._send("GET", path))

    async def _delete(self, path: str) -> None:
        try:
            await self._send("DELETE", path)
        except ManagementError as exc:
            if exc.status != 404:
                raise

    async def _send(self, method: str, path: str, body: Any = None, *, also: int = 0) -> bytes:
        """Return the reply's body; ManagementError names the request, never its body.

        ``also`` is a status that is no failure.
        """
        where = f"{method} {self.url}/api{path.partition('?')[0]}"
        encoded = b"" if body is None else orjson.dumps(body)
        try:
            reply = await self._http.send(method, f"/api{path}", encoded)
        except (OSError, ValueError) as exc:
            raise ManagementError(f"{where}: {exc}") from exc
        if reply.status // 100 != 2 and reply.status != also:
            raise ManagementError(f"{where}: {_why(reply)}", status=reply.status)
        return reply.body


def _why(reply: Reply) -> str:
    """Return the status, with RabbitMQ's ``reason`` if there is one."""
    try:
        answer = orjson.loads(reply.body or b"{}")
    except ValueError:
        answer = {}
    reason = answer.get("reason") if isinstance(answer, dict) else None
    why = f" ({reason[:200]})" if isinstance(reason, str) else ""
    return f"{responses.get(reply.status, reply.status)}{why}"


def _binding_path(binding: Binding) -> str:
    return f"/bindings/{_VHOST}/e/{_quote(binding.exchange)}/q/{_quote(binding.queue)}"


def _quote(name: str) -> str:
    return quote(name, safe="")


def _queue_state(entry: Mapping[str, Any]) -> QueueState:
    arguments = entry.get("arguments")
    return QueueState(
        name=_text(entry, "name"),
        # RabbitMQ doesn't distinguish an empty Erlang list from an empty object.
        arguments=arguments if isinstance(arguments, dict) else {},
        exclusive=entry.get("exclusive") is True,
    )


def _shovel_state(entry: Mapping[str, Any]) -> ShovelState:
    state = _text(entry, "state")
    return ShovelState(
        name=_text(entry, "name"),
        state="running" if state in _RUN else state,
        reason=str(entry.get("reason", ""))[:300],
    )


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError as exc:
        raise ManagementError(f"the management API answered with no JSON: {exc}") from exc


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ManagementError("the management API answered with no object where one belongs")
    return value


def _objects(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise ManagementError("the management API answered with no list where one belongs")
    return [_object(entry) for entry in value]


def _text(entry: Mapping[str, Any], field: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str):
        raise ManagementError(f"the management API's answer lacks {field!r}")
    return value
