"""A machine's metadata (IMDSv2): its instance id, and whether AWS is about to end it.

Requests go to a fixed address, without a proxy, with a token. Answers are bounded.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from newsfabric.errors import NewsfabricError
from operations.instance.description import INSTANCE_ID

# AWS's own name of the variable, for its tools as for us.
ENDPOINT: Final = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_DEFAULT: Final = "http://169.254.169.254"
_MAX_BYTES: Final = 16 << 10
_TOKEN_SECONDS: Final = 3600
_STATE: Final = "autoscaling/target-lifecycle-state"


class MetadataError(NewsfabricError):
    """The metadata service doesn't answer, or with an invalid answer. Retry later."""


class Metadata:
    """The service at ``endpoint``; each call waits ``timeout`` seconds for each answer.

    MetadataError for an endpoint that is no http URL, and from each call without a valid answer.
    """

    def __init__(self, endpoint: str = _DEFAULT, *, timeout: float = 2.0) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme != "http" or parts.hostname is None:
            raise MetadataError(f"{ENDPOINT}: no http URL")
        self._address = (parts.hostname, parts.port or 80)
        self._timeout = timeout
        self._token: str | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Metadata:
        """Return the service that ``environ`` names, else EC2's."""
        return cls(environ.get(ENDPOINT, _DEFAULT))

    def instance_id(self) -> str:
        """Return the instance's id, like ``i-0123456789abcdef0``."""
        found = self._get("instance-id")
        if found is None or INSTANCE_ID.fullmatch(found) is None:
            raise MetadataError("metadata: no instance-id")
        return found

    def aws_region(self) -> str:
        """Return AWS's name of the region, like ``us-west-2``."""
        found = self._get("placement/region")
        if not found:
            raise MetadataError("metadata: no placement/region")
        return found

    def target_state(self) -> str | None:
        """Return the state to which the group is bringing this instance; None without a group."""
        return self._get(_STATE)

    def _get(self, path: str) -> str | None:
        for fresh in (False, True):
            if self._token is None or fresh:
                self._token = self._new_token()
            headers = {"X-aws-ec2-metadata-token": self._token}
            status, text = self._ask("GET", f"/latest/meta-data/{path}", headers)
            if status == http.HTTPStatus.OK:
                return text.strip()
            if status == http.HTTPStatus.NOT_FOUND:
                return None
            if status != http.HTTPStatus.UNAUTHORIZED:
                break
        raise MetadataError(f"metadata: {path}: status {status}")

    def _new_token(self) -> str:
        seconds = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
        status, text = self._ask("PUT", "/latest/api/token", seconds)
        if status != http.HTTPStatus.OK or not text.isascii() or not text.isprintable():
            raise MetadataError(f"metadata: no token, status {status}")
        return text

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
        try:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(_MAX_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise MetadataError(f"metadata: {type(exc).__name__}: {exc}") from exc
        finally:
            connection.close()
