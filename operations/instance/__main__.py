"""``python -m operations.instance``: the programs of a machine of an autoscaling group."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click

from newsfabric.brokers.management import Management
from newsfabric.errors import ConfigError
from newsfabric.process import service
from newsfabric.settings import credentials_from, is_name, without_login
from operations.instance.admit import Admission, AdmittedGroup, admit
from operations.instance.cloud import InstanceCloud
from operations.instance.leave import POLL_SECONDS, RENEW, EndWatch, StoppedServices
from operations.instance.leaving import Leaving
from operations.instance.metadata import Metadata
from operations.instance.settle import chown, described, renew, settle, systemctl

# The agent's drain, then the gateway's end, then the killing of processes that still run.
_SPARE_SECONDS = 90.0


@click.group(context_settings={"auto_envvar_prefix": "NEWSFABRIC"})
def main() -> None:
    """A machine of an autoscaling group on AWS, from its first boot to its end."""


@main.command("settle")
@service.process_options
def settle_command() -> None:
    """Make this machine the box that /etc/newsfabric/instance.json names, and start it."""

    async def once(_: asyncio.Event) -> None:
        await asyncio.to_thread(_settle)

    service.run(once, name="settle", log_level="info")


def _settle() -> None:
    root = Path("/")
    description = described(root)
    # Machines of other parts are set up by Ansible.
    if description is None:
        return
    metadata = Metadata.of(os.environ)
    settle(
        root,
        description,
        metadata.instance_id(),
        InstanceCloud(metadata.aws_region()),
        systemctl,
        give=chown,
    )


@main.command("renew")
@service.process_options
def renew_command() -> None:
    """Read the shared secrets of all boxes in Secrets Manager again; ``leave`` starts this."""

    async def once(_: asyncio.Event) -> None:
        await asyncio.to_thread(_renew)

    service.run(once, name="renew", log_level="info")


def _renew() -> None:
    description = described(Path("/"))
    if description is None:
        return
    cloud = InstanceCloud(Metadata.of(os.environ).aws_region())
    renew(Path("/"), description, cloud, systemctl, give=chown)


@main.command("leave")
@service.process_options
def leave_command() -> None:
    """Watch for the end of this box: drain it then, and notify AWS."""

    async def watch(stop: asyncio.Event) -> None:
        description = described(Path("/"))
        if description is None:
            raise ConfigError("instance.json: this machine is no box")
        metadata = Metadata.of(os.environ)
        box = await asyncio.to_thread(metadata.instance_id)
        cloud = InstanceCloud(await asyncio.to_thread(metadata.aws_region))
        found = EndWatch(
            Leaving(limit=description.drain_seconds + _SPARE_SECONDS),
            place=(description.group, description.hook, box),
            metadata=metadata,
            cloud=cloud,
            drain=StoppedServices(),
            renew=lambda: systemctl(["systemctl", "start", "--no-block", RENEW]),
        )
        service.up()
        now = asyncio.get_running_loop().time
        while not stop.is_set() and not await asyncio.to_thread(found.check, now()):
            try:
                await asyncio.wait_for(stop.wait(), POLL_SECONDS)
            except TimeoutError:
                continue
        # AWS was notified: nothing is left to do, and the unit must not be restarted.
        await stop.wait()

    service.run(watch, name="leave", log_level="info")


@main.command("admit")
@click.option("--region", required=True, help="The fabric's region.")
@click.option("--group", required=True, help="The boxes' autoscaling group.")
@click.option("--secrets", "prefix", required=True, help="What boxes' secrets' names begin with.")
@click.option("--aws-region", required=True, help="AWS's region, like us-west-2.")
@click.option("--account", required=True, help="The AWS account, twelve digits.")
@click.option("--partition", default="aws", show_default=True, help="As in arn:PARTITION:…")
@click.option("--key", default=None, help="ARN of the KMS key that encrypts boxes' secrets.")
@click.option("--management", required=True, help="Management URL of a core node.")
@service.process_options
def admit_command(
    region: str,
    group: str,
    prefix: str,
    aws_region: str,
    account: str,
    partition: str,
    key: str | None,
    management: str,
) -> None:
    """Give each box of the group its user on the core. Logs in as an administrator."""

    async def serve(stop: asyncio.Event) -> None:
        if not is_name(region):
            raise ConfigError(f"{region!r} is no name (a-z, 0-9 and -, at most 63)")
        place = AdmittedGroup(
            region=region,
            group=group,
            prefix=prefix,
            machines=f"arn:{partition}:ec2:{aws_region}:{account}:instance/",
            key=key,
        )
        url = without_login(management, "--management")
        async with Management(url, credentials_from(os.environ)) as users:
            service.up()
            await admit(stop, Admission(place, InstanceCloud(aws_region), users))

    service.run(serve, name="admit", log_level="info")


if __name__ == "__main__":
    main()
