"""The keys that bytes from a terminal stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operations.top.keys import Keyboard

NAMED = {
    b"\x1b[A": "up",
    b"\x1bOB": "down",
    b"\x1b[1;5C": "right",
    b"\x1b[5~": "page up",
    b"\x1b[6;2~": None,
    b"\x1b[H": "home",
    b"\x1b[4~": "end",
    b"\x1b[Z": "back tab",
    b"\t": "tab",
    b"\r": "enter",
    b"\x7f": "backspace",
    b"\x1b": "escape",
    b"q": "q",
    "é".encode(): "é",
    b"\x03": "interrupt",
    b"\x01": None,
    b"\x1b[200~": None,
}


@pytest.mark.parametrize(("read", "key"), NAMED.items())
def test_a_key_has_its_name(read: bytes, key: str | None) -> None:
    assert Keyboard().feed(read) == ([] if key is None else [key])


def test_several_keys_may_come_at_once() -> None:
    assert Keyboard().feed(b"/a\x1b[A\x1b[Bb\r") == ["/", "a", "up", "down", "b", "enter"]


@pytest.mark.parametrize("cut", [2, 3])
def test_a_sequence_may_come_in_two_pieces(cut: int) -> None:
    keyboard = Keyboard()
    whole = b"\x1b[5~"
    assert keyboard.feed(whole[:cut]) + keyboard.feed(whole[cut:]) == ["page up"]


@given(st.lists(st.binary()))
def test_whatever_is_typed_is_keys_that_can_be_shown(pieces: list[bytes]) -> None:
    keyboard = Keyboard()
    assert all(key.isprintable() for piece in pieces for key in keyboard.feed(piece))
    assert len(keyboard._rest) <= 32
