import xml.etree.ElementTree as ET
from collections.abc import Sequence

from localfabric.plot import Band, Panel, PlotLine, draw

SVG = "{http://www.w3.org/2000/svg}"
FAULTS = [Band(1, 2, "router", "kill a"), Band(3, 3, "router", "kill b")]


def _draw(delays: Sequence[float | None], rates: Sequence[float | None] = ()) -> ET.Element:
    panels = [
        Panel("a second", [PlotLine("deliveries/s", rates or [1.0, 2.0, 3.0, 4.0])]),
        Panel("delay", [PlotLine("worst", delays)], durations=True),
    ]
    return ET.fromstring(draw("3 < 4 & 5", range(4), panels, bands=FAULTS))


def _texts(root: ET.Element) -> list[str | None]:
    return [text.text for text in root.iter(f"{SVG}text")]


def test_the_title_is_escaped() -> None:
    assert "3 < 4 & 5" in _texts(_draw([1.0] * 4))


def test_each_fault_says_what_it_is_and_faults_of_one_kind_share_a_line() -> None:
    rects = [r for r in _draw([1.0] * 4).iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    assert [r.findtext(f"{SVG}title") for r in rects] == ["kill a", "kill b"]
    assert len({rect.get("y") for rect in rects}) == 1


def test_a_fault_without_length_can_be_seen() -> None:
    rects = [r for r in _draw([1.0] * 4).iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    assert all(float(rect.get("width") or 0) >= 3 for rect in rects)


def test_a_second_without_deliveries_is_a_hole_in_the_line() -> None:
    lines = list(_draw([0.1, None, 0.2, 0.3]).iter(f"{SVG}polyline"))
    assert len(lines) == 1 + 2


def test_delays_beyond_the_scale_are_drawn_inside_the_picture() -> None:
    root = _draw([0.0, 0.00001, 5000.0, None], [0.0, 0.0, 0.0, 0.0])
    height = float(root.get("viewBox", "").split()[3])
    points = [p for line in root.iter(f"{SVG}polyline") for p in line.get("points", "").split()]
    assert all(0 <= float(point.split(",")[1]) <= height for point in points)


def test_delays_are_labelled_from_a_millisecond_on_and_times_by_the_clock() -> None:
    texts = _texts(_draw([0.001, 0.5, 1.0, 20.0]))
    assert [t for t in texts if t and t.endswith("s") and t[0].isdigit()] == [
        "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s",
    ]  # fmt: skip
    assert {"0:00", "0:03"} <= set(texts)


def test_of_values_that_share_a_point_the_highest_is_drawn() -> None:
    values = [0.0] * 900
    values[500] = 9.0
    text = draw("", range(900), [Panel("p", [PlotLine("l", values)])])
    points = next(ET.fromstring(text).iter(f"{SVG}polyline")).get("points", "").split()
    heights = [float(point.split(",")[1]) for point in points]
    assert len(heights) == 300
    assert sum(height < max(heights) for height in heights) == 1
