"""Calls of boxes and their core to AWS: secrets, lifecycle, the group's instances.

boto3 finds login and region as AWS's own tools do (on a machine: its role). Calls block, each for
some seconds at most; a secret is in no error and no log line.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

import boto3
import botocore.config
import botocore.exceptions

from newsfabric.errors import NewsfabricError

_CONFIG: Final = botocore.config.Config(
    connect_timeout=3, read_timeout=6, retries={"total_max_attempts": 2, "mode": "standard"}
)
_BOX_TAG: Final = "Box"


class CloudError(NewsfabricError):
    """AWS doesn't answer or refuses; ``code`` is AWS's error code, empty without an answer."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class InstanceCloud:
    """AWS, with the rights of this machine's role, in the AWS region ``region``.

    CloudError for an unknown region, and for each refusal of AWS.
    """

    def __init__(self, region: str) -> None:
        try:
            self._secrets: Any = boto3.client("secretsmanager", region_name=region, config=_CONFIG)
            self._groups: Any = boto3.client("autoscaling", region_name=region, config=_CONFIG)
        except (botocore.exceptions.BotoCoreError, ValueError) as exc:
            raise CloudError(f"AWS: {exc}") from exc

    def secret(self, name: str) -> str:
        """Return the secret's text; CloudError also for a binary one."""
        answer = _ask(f"secret {name}", lambda: self._secrets.get_secret_value(SecretId=name))
        text = answer.get("SecretString")
        if not isinstance(text, str):
            raise CloudError(f"secret {name}: it holds no text")
        return text

    def box_password(self, prefix: str, box: str, machine: str, key: str | None) -> str:
        """Return the password of ``box``, made now if it has none.

        Only the machine whose ARN is ``machine`` may read it: a box's role requires that tag.
        ``key``: the KMS key that encrypts it.
        """
        name = prefix + box
        wanted: dict[str, Any] = {
            "Name": name,
            "SecretString": secrets.token_urlsafe(32),
            "Tags": [{"Key": _BOX_TAG, "Value": machine}],
        }
        if key:
            wanted["KmsKeyId"] = key
        try:
            _ask(f"secret {name}", lambda: self._secrets.create_secret(**wanted))
        except CloudError as exc:
            # Made by another core node, or by us before.
            if exc.code != "ResourceExistsException":
                raise
        return self.secret(name)

    def forget_box(self, prefix: str, box: str) -> None:
        """Delete the password of ``box`` for good, if there is one."""
        name = prefix + box
        try:
            _ask(
                f"secret {name}",
                lambda: self._secrets.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True),
            )
        except CloudError as exc:
            if exc.code != "ResourceNotFoundException":
                raise

    def instances(self, group: str) -> set[str]:
        """Return the ids of the group's instances, in any state."""
        answer = _ask(
            f"group {group}",
            lambda: self._groups.describe_auto_scaling_groups(AutoScalingGroupNames=[group]),
        )
        return {each["InstanceId"] for each in _only(answer["AutoScalingGroups"], group)}

    def beat(self, group: str, hook: str, box: str) -> None:
        """Restart the time-out of the hook."""
        _ask(
            "heartbeat",
            lambda: self._groups.record_lifecycle_action_heartbeat(
                AutoScalingGroupName=group, LifecycleHookName=hook, InstanceId=box
            ),
        )

    def complete(self, group: str, hook: str, box: str) -> None:
        """Let AWS end the instance."""
        _ask(
            "lifecycle",
            lambda: self._groups.complete_lifecycle_action(
                AutoScalingGroupName=group,
                LifecycleHookName=hook,
                InstanceId=box,
                LifecycleActionResult="CONTINUE",
            ),
        )


def _only(groups: list[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    if not groups:
        raise CloudError(f"no autoscaling group {name!r} here")
    yield from groups[0]["Instances"]


def _ask(what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except botocore.exceptions.ClientError as exc:
        error = exc.response.get("Error", {})
        code = str(error.get("Code", ""))
        raise CloudError(f"{what}: {code}: {error.get('Message')}", code=code) from exc
    except botocore.exceptions.BotoCoreError as exc:
        raise CloudError(f"{what}: {type(exc).__name__}: {exc}") from exc
