"""The files of a world, by purpose. Pure: paths are made, not looked at."""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The files and folders in a world's state folder."""

    state: Path

    @property
    def fabric(self) -> Path:
        """fabric.json, for every service."""
        return self.state / "fabric.json"

    @property
    def topics(self) -> Path:
        """The world's own copy of topics.toml."""
        return self.state / "topics.toml"

    @property
    def token_key(self) -> Path:
        """The private key of `newsfabric token`."""
        return self.state / "token-key.pem"

    @property
    def token_keys(self) -> Path:
        """The keys with which gateways check readers' tokens."""
        return self.state / "token-keys.pem"

    @property
    def store(self) -> Path:
        """The SQLite store; one for all regions, as one Cassandra with two DCs would be."""
        return self.state / "store.sqlite"

    @property
    def logs(self) -> Path:
        """The folder of logs, one for each process."""
        return self.state / "logs"

    @property
    def cassandra(self) -> Path:
        """The folder with a folder for each Cassandra node."""
        return self.state / "cassandra"

    @property
    def brokers(self) -> Path:
        """The folder with a folder for each RabbitMQ node."""
        return self.state / "brokers"

    @property
    def erlang(self) -> Path:
        """HOME of all Erlang programs: holds the cookie."""
        return self.state / "erlang"

    @property
    def sockets(self) -> Path:
        """The folder of the sockets between gateways and their data planes."""
        return self.state / "sockets"

    @property
    def links(self) -> Path:
        """The configuration of Toxiproxy."""
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
        """Return the path of ``region``'s fabric.json, with Toxiproxy's addresses of others."""
        return self.state / "fabric" / f"{region}.json"

    def definitions(self, name: str) -> Path:
        """Return the path of the generated definitions.json of the broker or cluster ``name``."""
        return self.state / "definitions" / f"{name}.json"

    def log(self, process: str) -> Path:
        """Return the path of the log of ``process``."""
        return self.logs / f"{process}.log"
