"""The options of ``python -m wholesale scaler`` for the boxes: the plan and the driver."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import shlex
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import click

from newsfabric.errors import ConfigError, SetupError
from newsfabric.safe_output import terminal_safe
from wholesale.scaler.drivers import Driver
from wholesale.scaler.drivers.cloudwatch import CloudWatch, MetricsSink
from wholesale.scaler.drivers.command import CommandDriver
from wholesale.scaler.drivers.none import NoDriver
from wholesale.scaler.plan import ScalingPlan

DRIVERS: Final = ("none", "command", "aws", "world")

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_FOLDER: Final = click.Path(file_okay=False, path_type=Path)
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smh]?)", re.ASCII)


def seconds(_context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Return ``90``, ``90s``, ``3m`` or ``1.5h`` in seconds: for an option's ``callback``."""
    found = _DURATION.fullmatch(value)
    if found is None:
        what = f"{value!r} is no duration: write 90s, 3m or 1h"
        raise click.BadParameter(terminal_safe(what), param=parameter)
    return float(found[1]) * _UNITS[found[2]]


_DEFAULT: Final = ScalingPlan()
# Name, type, and text for --help.
_PLAN: Final[tuple[tuple[str, Any, str], ...]] = (
    ("per-box", int, "Readers that one box carries."),
    ("headroom", float, "Share of each box that is kept free."),
    ("boot", seconds, "From asking for a box until it takes readers."),
    ("drain", seconds, "What a box needs to send its readers away."),
    ("zones", int, "Zones that share the boxes; one may be lost."),
    ("connects-per-box", float, "Arrivals a second that one box takes."),
    ("least", int, "Never fewer boxes."),
    ("most", int, "Never more boxes."),
    ("calm", seconds, "Fewer must have been enough for so long before a box goes."),
)


def only_plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that make a :class:`ScalingPlan`; the command gets it as ``plan``."""

    @functools.wraps(command)
    def with_plan(**given: Any) -> Any:
        fields = {name.replace("-", "_"): given.pop(name.replace("-", "_")) for name, _, _ in _PLAN}
        return command(plan=ScalingPlan(**fields), **given)

    for name, kind, text in reversed(_PLAN):
        field = name.replace("-", "_")
        default = getattr(_DEFAULT, field)
        if kind is seconds:
            typed: dict[str, Any] = {
                "callback": seconds,
                "default": f"{default:g}s",
                "metavar": "DURATION",
            }
        else:
            typed = {"type": kind, "default": default}
        with_plan = click.option(
            f"--{name}",
            envvar=f"NEWSFABRIC_SCALER_{field.upper()}",
            show_envvar=True,
            show_default=True,
            help=text,
            **typed,
        )(with_plan)
    return with_plan


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScalerOptions:
    """The options of a scaler: its plan, and its driver."""

    plan: ScalingPlan
    driver: str
    command: str | None
    group: str | None
    aws_region: str | None
    cloudwatch: str | None
    world: Path | None

    @contextlib.asynccontextmanager
    async def opened(self, region: str) -> AsyncIterator[tuple[Driver, MetricsSink | None]]:
        """Yield the driver of ``region`` and the monitoring; ConfigError for a missing option."""
        async with contextlib.AsyncExitStack() as stack:
            driver = self._driver(region)
            stack.push_async_callback(driver.close)
            watching: MetricsSink | None = None
            if self.cloudwatch is not None:
                cloud = _aws().AwsClient("cloudwatch", region=self.aws_region, endpoint=_endpoint())
                stack.callback(cloud.close)
                watching = CloudWatch(self.cloudwatch, cloud)
            yield driver, watching

    def _driver(self, region: str) -> Driver:
        match self.driver:
            case "command":
                return CommandDriver(
                    _words(_needed(self.command, "--driver command needs --command"))
                )
            case "aws":
                group = _needed(self.group, "--driver aws needs --group")
                driver: Driver = _aws().AwsDriver(
                    group, region=self.aws_region, endpoint=_endpoint()
                )
                return driver
            case "world":
                from wholesale.scaler.drivers.world import WorldDriver

                return WorldDriver(_needed(self.world, "--driver world needs --world"), region)
            case _:
                return NoDriver()


def plan_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the plan's options and the driver's; the command gets them as ``options``."""

    @functools.wraps(command)
    def with_scaler_options(
        plan: ScalingPlan,
        driver: str,
        command_line: str | None,
        group: str | None,
        aws_region: str | None,
        cloudwatch: str | None,
        world: Path | None,
        **given: Any,
    ) -> Any:
        options = ScalerOptions(
            plan=plan,
            driver=driver,
            command=command_line,
            group=group,
            aws_region=aws_region,
            cloudwatch=cloudwatch,
            world=world,
        )
        return command(options=options, **given)

    with_options = only_plan_options(with_scaler_options)
    for option in reversed(
        [
            _option(
                "--driver", type=click.Choice(DRIVERS), default="none", help="What makes boxes."
            ),
            _option("--command", "command_line", help="Driver command: a program with arguments."),
            _option("--group", help="Driver aws: the autoscaling group."),
            _option(
                "--aws-region", help="Driver aws and CloudWatch: AWS's region, like us-west-2."
            ),
            _option("--world", type=_FOLDER, help="Driver world: its folder."),
            _option(
                "--cloudwatch", metavar="NAMESPACE", help="Report the wanted boxes to CloudWatch."
            ),
        ]
    ):
        with_options = option(with_options)
    return with_options


def _option(name: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    envvar = f"NEWSFABRIC_SCALER_{name.strip('-').replace('-', '_').upper()}"
    return click.option(
        name, *names, envvar=envvar, show_envvar=True, show_default=True, **settings
    )


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as exc:
        # Without the line itself: it may contain a secret.
        raise ConfigError(f"--command can't be read as a shell does: {exc}") from exc
    if not words:
        raise ConfigError("--command: no program")
    return words


def _needed(value: Any, text: str) -> Any:
    if value is None:
        raise ConfigError(text)
    return value


def _aws() -> Any:
    try:
        from wholesale.scaler.drivers import aws
    except ImportError as exc:
        raise SetupError("AWS needs boto3: pip install 'newsfabric[aws]'") from exc
    return aws


def _endpoint() -> str | None:
    """Return another cloud's address, in the environment variable of AWS's own tools."""
    return os.environ.get("AWS_ENDPOINT_URL") or None
