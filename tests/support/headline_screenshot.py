"""The program that makes docs/headline.png: a headline published in one region, on another's page.

Run it beside a world that is up; its argument is the world's state folder::

    newsfabric up --detach
    PYTHONPATH=tests/support:. .venv/bin/python tests/support/headline_screenshot.py .world

The picture shows real events: the command, its output, and the pages of the regions. Each page
can reach its own region alone: on one machine, the nearest region is a matter of chance.
"""

from __future__ import annotations

import base64
import html
import subprocess
import sys
from pathlib import Path
from typing import Final

from chromium import launched
from playwright.sync_api import Browser, expect
from worlds import World

FILE: Final = Path(__file__).parents[2] / "docs" / "headline.png"
TOPIC: Final = "news.breaking"
BODY: Final = '{"headline":"Comet seen over the bay"}'
WORDS: Final = ("publish", TOPIC, BODY, "--region", "oregon")
VIEWPORT: Final = {"width": 560, "height": 420}
PICTURE: Final = """<!doctype html><style>
body {{ margin: 0; padding: 16px; width: 1136px; background: #e8e8ea; font: 14px/1.5 monospace }}
pre {{ margin: 0 0 16px; padding: 12px 16px; background: #1e1f26; color: #e8e8ea }}
pre, img {{ border-radius: 6px }}
div {{ display: flex; gap: 16px }}
img {{ width: 560px; display: block }}
</style><pre>{command}</pre><div>{pages}</div>"""


def main(state: Path) -> None:
    """Publish, and take the picture when all pages have the headline."""
    world = World(state.resolve())
    with launched() as browser:
        taken = _pages(browser, world)
        shots = "".join(f'<img src="data:image/png;base64,{shot}">' for shot in taken[1])
        command = f"$ newsfabric publish {TOPIC} '{BODY}' --region oregon\n{taken[0]}"
        page = browser.new_page(viewport={"width": 1168, "height": 400})
        page.set_content(PICTURE.format(command=html.escape(command), pages=shots))
        page.screenshot(path=FILE, full_page=True)


def _pages(browser: Browser, world: World) -> tuple[str, list[str]]:
    """Return the output of `publish`, and the pages of all regions as base64."""
    regions = world.status()["regions"]
    pages = []
    for region in regions:
        page = browser.new_page(viewport=VIEWPORT, color_scheme="light")
        for other in regions:
            if other is not region:
                page.route(other["endpoints_url"], lambda route: route.abort())
        page.goto(region["frontdesk_url"])
        expect(page.get_by_test_id("state")).to_contain_text("live", ignore_case=True)
        pages.append(page)
    done = world.run(*WORDS)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, WORDS, done.stdout, done.stderr)
    shots = []
    for page in pages:
        story = page.get_by_test_id("story").filter(has_text="Comet seen over the bay")
        expect(story.first).to_be_visible()
        page.evaluate("scrollTo(0, 0)")
        shots.append(base64.b64encode(page.screenshot()).decode())
    return done.stdout.strip(), shots


if __name__ == "__main__":
    main(Path(sys.argv[1]))
