import xml.etree.ElementTree as ET

from localfabric.chaos.plot import Band, Series, draw

SVG = "{http://www.w3.org/2000/svg}"


def _draw(delays: list[float | None], rates: list[float | None] | None = None) -> ET.Element:
    text = draw(
        title="3 < 4 & 5",
        seconds=4,
        bands=[Band(1, 2, "router", "kill a"), Band(3, 3, "router", "kill b")],
        rates=[Series("deliveries/s", rates or [1.0, 2.0, 3.0, 4.0])],
        delays=[Series("worst", delays)],
    )
    return ET.fromstring(text)


def test_the_title_is_escaped() -> None:
    assert "3 < 4 & 5" in [text.text for text in _draw([1.0] * 4).iter(f"{SVG}text")]


def test_each_fault_says_what_it_is_and_faults_of_one_kind_share_a_lane() -> None:
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
