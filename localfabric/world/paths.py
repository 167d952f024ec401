"""The files of a world, by what they are for. Pure: paths are made, not looked at."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where things are in a world's state folder."""

    state: Path

    @property
    def fabric(self) -> Path:
        """fabric.json, what every service is told."""
        return self.state / "fabric.json"

    @property
    def topics(self) -> Path:
        """The world's own copy of topics.toml."""
        return self.state / "topics.toml"

    @property
    def token_key(self) -> Path:
        """What `newsfabric token` signs with."""
        return self.state / "token-key.pem"

    @property
    def token_keys(self) -> Path:
        """What gateways check readers' tokens with."""
        return self.state / "token-keys.pem"

    @property
    def store(self) -> Path:
        """The SQLite store; one for all regions, as one Cassandra with two DCs would be."""
        return self.state / "store.sqlite"

    @property
    def logs(self) -> Path:
        """One log for each process."""
        return self.state / "logs"

    @property
    def cassandra(self) -> Path:
        """One folder for each Cassandra node."""
        return self.state / "cassandra"

    @property
    def brokers(self) -> Path:
        """One folder for each RabbitMQ node."""
        return self.state / "brokers"

    @property
    def erlang(self) -> Path:
        """HOME of everything Erlang: holds the cookie."""
        return self.state / "erlang"

    @property
    def sockets(self) -> Path:
        """Where gateways and their data planes meet."""
        return self.state / "sockets"

    @property
    def links(self) -> Path:
        """What Toxiproxy is told."""
        return self.state / "links.json"

    @property
    def publishers(self) -> Path:
        """The passwords of publishers with rights of their own, a file for each."""
        return self.state / "publishers"

    @property
    def users(self) -> Path:
        """The passwords of the fabric's own users, a file for each."""
        return self.state / "users"

    def fabric_seen_from(self, region: str) -> Path:
        """fabric.json as ``region`` sees it, which reaches the others through Toxiproxy."""
        return self.state / "fabric" / f"{region}.json"

    def definitions(self, name: str) -> Path:
        """The generated definitions.json of the broker or cluster ``name``."""
        return self.state / "definitions" / f"{name}.json"

    def log(self, process: str) -> Path:
        """The log of the process of that name."""
        return self.logs / f"{process}.log"
