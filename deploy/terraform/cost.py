"""The cost of a month of a fabric on AWS, by its size: the sums behind the tables in README.md.

``newsfabric capacity`` gives the number of boxes, at the peak and on average (the scaler starts and
ends boxes all day). All else is in prices.toml: prices, use, sizes of machines.

    .venv/bin/python deploy/terraform/cost.py
    .venv/bin/python deploy/terraform/cost.py --prices ours.toml --json
    .venv/bin/python deploy/terraform/cost.py --write      # the tables in README.md anew
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from pathlib import Path
from typing import Any, Final, Literal

import click

from wholesale.scaler.capacity import capacity_for
from wholesale.scaler.drivers import MOST_BOXES
from wholesale.scaler.plan import ScalingPlan

HERE: Final = Path(__file__).parent
README: Final = HERE / "README.md"
BEGIN: Final = "<!-- cost.py --write: from here -->\n"
END: Final = "<!-- to here -->\n"

Edge = Literal["direct", "nlb"]
EDGES: Final[tuple[Edge, ...]] = ("direct", "nlb")
# The size of a system volume, and the performance that gp3's price includes.
_ROOT_GB: Final = 20
_FREE_IOPS: Final = 3000
_FREE_MIBPS: Final = 125
_GB: Final = 1e9
# Made by modules/observability, Ansible and the scalers of three core nodes in each region.
_ALARMS: Final = 27
_SECRETS: Final = 2
_SCALER_METRICS: Final = 24


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """A month of ``readers`` at the peak. Dollars; boxes are those of one region."""

    readers: int
    edge: Edge
    per_box: int
    boxes_at_peak: int
    boxes_on_average: int
    costs: dict[str, float]

    @property
    def total(self) -> float:
        """Dollars in all."""
        return sum(self.costs.values())


def boxes(readers: float, use: dict[str, Any], per_box: int) -> int:
    """Return the boxes of one region, for its part of ``readers`` that arrive as in ``use``."""
    plan = ScalingPlan(per_box=per_box, zones=use["zones"], least=use["zones"], most=MOST_BOXES)
    here = math.ceil(readers / use["regions"])
    found = capacity_for(here, 0, use["within_seconds"], plan)
    return max(found.before.boxes, found.after.boxes)


def tiered(gigabytes: float, tiers: list[dict[str, float]]) -> float:
    """Return dollars for ``gigabytes``, each tier's part at its price."""
    dollars = 0.0
    done = 0.0
    for tier in tiers:
        end = min(gigabytes, tier.get("up_to_tb", math.inf) * 1000)
        dollars += max(0.0, end - done) * tier["gb"]
        done = max(done, end)
    return dollars


def month(size: dict[str, Any], edge: Edge, inputs: dict[str, Any]) -> Month:
    """Return the month of one of ``inputs["size"]``, with readers connecting by ``edge``."""
    use, network, hours = inputs["use"], inputs["network"], inputs["use"]["hours"]
    readers = size["readers"]
    mean = readers * use["mean_share"]
    per_box = inputs["per_box"][edge]
    regions = use["regions"]
    peak = boxes(readers, use, per_box)
    average = boxes(mean, use, per_box)
    fixed = _machines(size, use)
    out_gb = _out_per_second(mean, use) * hours * 3600 / _GB
    addresses = (
        regions * average
        + sum(each["number"] for each in fixed if each is not size["store"])
        + regions * use["zones"] * (2 if edge == "nlb" else 1)
    )
    return Month(
        readers=readers,
        edge=edge,
        per_box=per_box,
        boxes_at_peak=peak,
        boxes_on_average=average,
        costs={
            "boxes": regions * average * _machine(inputs, size["box"], inputs["box"]["volume_gb"]),
            "brokers and store": sum(
                each["number"] * _machine(inputs, each["machine"], _ROOT_GB) + _data(inputs, each)
                for each in fixed
            ),
            "traffic out": tiered(out_gb, network["out"]),
            "balancers": regions * _balancers(mean, edge, inputs),
            "addresses": addresses * network["public_address_hour"] * hours,
            "the rest": _rest(inputs),
        },
    )


def cores_busy(readers: float, messages_per_second: float, box: dict[str, Any]) -> float:
    """Return the cores that ``readers`` on one box use, at these messages a second for each."""
    return float(readers * (messages_per_second * box["delivery_us"] + box["idle_us"]) / 1e6)


def fan_out_seconds(readers: float, box: dict[str, Any]) -> float:
    """Return the seconds from the first to the last of a box's ``readers`` that get a message."""
    return float(readers * box["delivery_us"] / 1e6 / box["cores"])


def sizing(inputs: dict[str, Any]) -> str:
    """Return the load and memory of readers on one box, as a table in Markdown."""
    box = inputs["box"]
    lines = [
        "| readers on a box | cores busy at 0.1, 1, 3 messages/s for each | one message to all | "
        "memory of the data plane, all logged in |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for readers in sorted(inputs["per_box"].values()):
        cores = ", ".join(f"{cores_busy(readers, rate, box):.2f}" for rate in (0.1, 1, 3))
        lines.append(
            f"| {readers:,} | {cores} of {box['cores']} | {fan_out_seconds(readers, box):.2f} s | "
            f"{readers * box['login_bytes'] / 1e6:.0f} MB |"
        )
    return "\n".join(lines) + "\n"


def _machines(size: dict[str, Any], use: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the machines that run all month: each region's clusters, and the proxy's."""
    return [size["client"], size["core"], size["store"]] * use["regions"] + [size["proxy"]]


def _machine(inputs: dict[str, Any], machine: str, gb: float) -> float:
    hour = inputs["machine_hour"][machine] * inputs["use"]["hours"]
    return float(hour + gb * inputs["volume"]["gb_month"] + inputs["small"]["monitoring_month"])


def _data(inputs: dict[str, Any], cluster: dict[str, Any]) -> float:
    volume = inputs["volume"]
    each = (
        cluster["gb"] * volume["gb_month"]
        + (cluster.get("iops", _FREE_IOPS) - _FREE_IOPS) * volume["iops_month"]
        + (cluster.get("mibps", _FREE_MIBPS) - _FREE_MIBPS) * volume["mibps_month"]
    )
    return float(cluster["number"] * each)


def _out_per_second(readers: float, use: dict[str, Any]) -> float:
    """Return the bytes that ``readers`` get each second."""
    each = use["messages_per_second"] * use["message_bytes"]
    return float(readers * (each + use["heartbeat_bytes"] / use["heartbeat_seconds"]))


def _balancers(mean: float, edge: Edge, inputs: dict[str, Any]) -> float:
    """Return the cost of the balancers of one region."""
    price, use = inputs["balancer"], inputs["use"]
    hourly = price["hour"] + price["frontdesks_unit_hour"]
    if edge == "nlb":
        here = mean / use["regions"]
        units = max(
            here / price["unit_connections"],
            here / use["stay_seconds"] / price["unit_new_per_second"],
            _out_per_second(here, use) * 3600 / _GB / price["unit_gb_per_hour"],
        )
        hourly += price["hour"] + units * price["readers_unit_hour"]
    return float(hourly * use["hours"])


def _rest(inputs: dict[str, Any]) -> float:
    """Return costs independent of readers: DNS, secrets, alarms, endpoints, traffic of regions."""
    small, use, network = inputs["small"], inputs["use"], inputs["network"]
    regions = use["regions"]
    seconds = use["hours"] * 3600
    between = use["published_per_second"] * use["published_bytes"] * seconds / _GB
    return float(
        regions * _SECRETS * small["secret_month"]
        + (regions + 1) * small["key_month"]
        + regions * _ALARMS * small["alarm_month"]
        + regions * _SCALER_METRICS * small["metric_month"]
        + regions * small["health_check_month"]
        + 2 * small["hosted_zone_month"]
        + regions * use["zones"] * network["endpoint_hour"] * use["hours"]
        + between * network["between_regions_gb"]
    )


def months(inputs: dict[str, Any]) -> list[Month]:
    """Return the months of every size, by each edge."""
    return [month(size, edge, inputs) for size in inputs["size"] for edge in EDGES]


def table(found: list[Month]) -> str:
    """Return a table in Markdown, rounded to ten dollars."""
    parts = list(found[0].costs)
    head = ["readers at the peak", "readers come", "boxes a region: peak / mean"]
    rows = [[*head, *parts, "dollars a month", "for 1,000 readers"]]
    rows.append(["---", *["---:" if n else "---" for n in range(len(rows[0]) - 1)]])
    for each in found:
        rows.append(
            [
                f"{each.readers:,}",
                "to boxes" if each.edge == "direct" else "by balancer",
                f"{each.boxes_at_peak:,} / {each.boxes_on_average:,}",
                *[_dollars(each.costs[part]) for part in parts],
                f"**{_dollars(each.total)}**",
                f"{each.total / each.readers * 1000:,.2f}",
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _dollars(amount: float) -> str:
    return f"{round(amount, -1):,.0f}"


def with_tables(text: str, inputs: dict[str, Any]) -> str:
    """Return ``text`` with both tables between the two marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{sizing(inputs)}\n{table(months(inputs))}\n{END}{after}"


@click.command()
@click.option(
    "--prices",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=HERE / "prices.toml",
    help="Prices, use and sizes, as prices.toml has them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--write", is_flag=True, help="Write the tables in README.md anew.")
def main(*, prices: Path, as_json: bool, write: bool) -> None:
    """Print the cost of a month, by size."""
    inputs = tomllib.loads(prices.read_text())
    found = months(inputs)
    if as_json:
        documents = [{**dataclasses.asdict(each), "total": each.total} for each in found]
        click.echo(json.dumps(documents, indent=2))
    elif write:
        README.write_text(with_tables(README.read_text(), inputs))
    else:
        click.echo(f"{sizing(inputs)}\n{table(found)}", nl=False)


if __name__ == "__main__":
    main()
