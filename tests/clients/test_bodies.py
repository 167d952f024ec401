"""Bodies that a library can't encode: the error names the place."""

from __future__ import annotations

import subprocess

import pytest
from client_programs import program

from bench.drivers import ROOT

# No broker listens there: a rejected message isn't sent.
PHP = r"""
require $argv[1];
$publisher = new Newsfabric\Publisher(['amqp://127.0.0.1:1/%2F'], appId: 'cms');
try {
    $publisher->send('news.x', eval("return $argv[2];"));
} catch (Throwable $error) {
    echo $error::class, ': ', $error->getMessage();
}
"""


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            r"""['story' => ['headline' => "Comet \xf0\x9f"]]""",
            "Newsfabric\\Rejected: not_utf8: body.story.headline isn't UTF-8",
        ),
        (
            r"""["a", ["\xff" => 1]]""",
            "Newsfabric\\Rejected: not_utf8: a key of body.1 isn't UTF-8",
        ),
        (
            "['price' => NAN]",
            "Newsfabric\\Rejected: not_json: JSON has no infinity and no NaN",
        ),
        ("fopen('php://memory', 'r')", "JsonException: Type is not supported"),
    ],
)
def test_php_says_what_json_can_not_say(body: str, error: str) -> None:
    program("php")
    done = subprocess.run(
        ["php", "-r", PHP, "--", f"{ROOT}/clients/php/autoload.php", body],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == error
