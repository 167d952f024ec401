"""A user's two devices with clients/js, one in each region, and the real mailbox service.

Order and content are tested here; the delay of a mark on the other device is measured in
test_the_mailbox.py.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest
from chromium import launched
from playwright.sync_api import Browser, Page
from worlds import World

pytestmark = [pytest.mark.world, pytest.mark.browser, pytest.mark.timeout(420)]

LONG: Final = 60_000
OPEN: Final = """
([topic, token]) => {
  const log = {letters: [], marks: []};
  const fabric = newsfabric.connect({endpoints: "/endpoints.json", token});
  fabric.subscribe(topic, {
    onMessage: (message) => log.letters.push(message),
    onMark: (mark) => log.marks.push(mark),
  });
  Object.assign(window, {fabric, log});
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@dataclasses.dataclass
class BrowserDevice:
    """A browser of its own on one region's site, which knows only that region's gateways."""

    page: Page
    site: str
    user: str

    @classmethod
    def of(cls, browser: Browser, world: World, region: str, user: str) -> BrowserDevice:
        page = browser.new_page()
        for other in world.status()["regions"]:
            if other["name"] != region:
                page.route(other["endpoints_url"], lambda route: route.abort())
        return cls(page, world.region(region)["frontdesk_url"], user)

    def open(self, token: str | None) -> BrowserDevice:
        """Load the page, or reload it, and open the mailbox."""
        # The reader's page allows only its own scripts.
        self.page.goto(f"{self.site}/healthz/live")
        self.page.add_script_tag(url=f"{self.site}/static/newsfabric.js")
        self.page.evaluate(OPEN, [f"user.{self.user}", token])
        return self

    def log_in(self, token: str) -> str:
        """Log in; return the user that the gateway reports."""
        user: str = self.page.evaluate("async (token) => (await fabric.login(token)).user", token)
        return user

    def letters(self, count: int) -> list[str]:
        """Return the texts of all letters, once there are ``count``."""
        self._until(f"log.letters.length >= {count}")
        found: list[str] = self.page.evaluate("log.letters.map(({body}) => body.text)")
        return found

    def marks(self, count: int) -> list[tuple[str, str]]:
        """Return kinds of marks and texts of their letters, once there are ``count`` marks."""
        self._until(f"log.marks.length >= {count}")
        marks: list[dict[str, Any]] = self.page.evaluate("log.marks")
        return [(mark["mark"], self._text_of(mark["id"])) for mark in marks]

    def _text_of(self, id_: str) -> str:
        find = "(tail) => log.letters.find(({id}) => id.slice(14) === tail).body.text"
        text: str = self.page.evaluate(find, id_[14:])
        return text

    def mark(self, kind: str, text: str) -> None:
        """``ack``, ``read`` or ``dismiss`` the letter that has this text, without a wait."""
        self.page.evaluate(
            "([kind, text]) => fabric[kind](log.letters.find(({body}) => body.text === text))",
            [kind, text],
        )

    def is_quiet(self) -> None:
        """Wait until all pushes sent to this page so far have arrived."""
        self.page.evaluate(f"fabric.history('user.{self.user}')")

    def _until(self, condition: str) -> None:
        self.page.wait_for_function(f"() => {condition}", polling=50, timeout=LONG)


def write_to(world: World, user: str, text: str, region: str = "oregon") -> None:
    """Publish an individual message; return when it is stored."""
    letter = json.dumps({"text": text})
    done = world.run("publish", f"user.{user}", letter, "--region", region)
    assert done.returncode == 0, done.stderr


def token_of(world: World, user: str) -> str:
    issued = world.run("token", user)
    assert issued.returncode == 0, issued.stderr
    return issued.stdout.strip()


def test_what_one_device_does_to_a_letter_is_so_on_the_other_and_after_a_reload(
    world: World, browser: Browser
) -> None:
    user = f"u-{uuid.uuid4()}"
    for n, region in enumerate(("oregon", "dublin", "oregon")):
        write_to(world, user, f"letter {n}", region)
    token = token_of(world, user)
    kept = ["letter 0", "letter 1", "letter 2"]

    phone = BrowserDevice.of(browser, world, "oregon", user).open(token)
    assert phone.letters(3) == kept
    desktop = BrowserDevice.of(browser, world, "dublin", user).open(None)
    assert desktop.log_in(token) == user
    assert desktop.letters(3) == kept

    phone.mark("dismiss", "letter 1")
    assert desktop.marks(1) == [("dismiss", "letter 1")]
    desktop.mark("read", "letter 0")
    assert phone.marks(2) == [("dismiss", "letter 1"), ("read", "letter 0")]
    phone.mark("ack", "letter 2")
    done = [("dismiss", "letter 1"), ("read", "letter 0"), ("ack", "letter 2")]
    assert desktop.marks(3) == done
    assert phone.marks(3) == done

    write_to(world, user, "letter 3", "dublin")
    for device in (phone, desktop):
        assert device.letters(4) == [*kept, "letter 3"]

    for device in (phone, desktop):
        device.open(token)
        assert device.letters(3) == ["letter 0", "letter 2", "letter 3"]
        assert device.marks(2) == [("read", "letter 0"), ("ack", "letter 2")]
        device.page.close()


def test_nobody_else_sees_the_letters_or_can_mark_them(world: World, browser: Browser) -> None:
    user, stranger = (f"u-{uuid.uuid4()}" for _ in range(2))
    write_to(world, user, "private")
    phone = BrowserDevice.of(browser, world, "oregon", user).open(token_of(world, user))
    assert phone.letters(1) == ["private"]
    letter = phone.page.evaluate("log.letters[0]")
    thief = BrowserDevice.of(browser, world, "oregon", user).open(token_of(world, stranger))
    for verb in ("ack", "read", "dismiss"):
        refused = f"(letter) => fabric.{verb}(letter).catch(({{code}}) => code)"
        assert thief.page.evaluate(refused, letter) == 103
    assert thief.page.evaluate("log") == {"letters": [], "marks": []}
    phone.is_quiet()
    assert phone.page.evaluate("log.marks") == []
    for device in (phone, thief):
        device.page.close()
