"""Publishers in six languages, with our libraries and samples as they are packed, into one world.

Failures of each library: tests/clients. The output of the samples: tests/e2e/test_samples.py.
"""

from __future__ import annotations

import shutil
import sys
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packed import UsersWorld, missing, printed
from tailing import Tail
from worlds import World

from bench.drivers import PHP_AMQPLIB, java_classpath
from newsfabric.errors import SetupError

pytestmark = [pytest.mark.slow, pytest.mark.world, pytest.mark.timeout(420)]

PYTHON = """import sys
from newsfabric.publish import Publisher
with Publisher([sys.argv[1]], app_id="cms") as publisher:
    publisher.publish(sys.argv[2], '"python"')
"""
PHP = """<?php
require __DIR__ . '/library/autoload.php';
$publisher = new Newsfabric\\Publisher([$argv[1]], appId: 'cms');
$publisher->publish($argv[2], '"php"');
$publisher->close();
"""
JAVA = """import io.newsfabric.publish.*;
import java.util.List;
public class Publish {
  public static void main(String[] arguments) {
    try (Publisher publisher = new Publisher(List.of(arguments[0]), new Settings("cms"))) {
      publisher.publish(arguments[1], "\\"java\\"");
    }
  }
}
"""
#: Puts the files of a program into its folder, given the checkout, the site of the wheel and that
#: folder; returns the command, to which URL and topic are added, and its environment variables.
Made = tuple[list[str | Path], dict[str, str]]


def python(_checkout: Path, site: Path, folder: Path) -> Made:
    program = folder / "publish.py"
    program.write_text(PYTHON, "utf-8")
    return [sys.executable, program], {"PYTHONPATH": str(site)}


def php(checkout: Path, _site: Path, folder: Path) -> Made:
    if shutil.which("composer") is None or not PHP_AMQPLIB.exists():
        missing("install php-cli, php-amqplib and composer")
    archive = ["composer", "archive", "--no-interaction", "--quiet", "--format=zip"]
    root = {"COMPOSER_ALLOW_SUPERUSER": "1"}
    printed([*archive, f"--dir={folder}", "--file=library"], checkout / "clients" / "php", root)
    with zipfile.ZipFile(folder / "library.zip") as packed:
        packed.extractall(folder / "library")
    program = folder / "publish.php"
    program.write_text(PHP, "utf-8")
    return ["php", program], {}


def java(checkout: Path, _site: Path, folder: Path) -> Made:
    try:
        # The first two folders are this checkout's own classes.
        jars = java_classpath().split(":", 2)[2]
    except SetupError as exc:
        missing(str(exc))
    library, classes = folder / "library.jar", folder / "classes"
    sources = sorted((checkout / "clients" / "java" / "src" / "main").rglob("*.java"))
    printed(["javac", "-cp", jars, "-d", classes, *sources], folder)
    printed(["jar", "--create", "--file", library, "-C", classes, "."], folder)
    program = folder / "Publish.java"
    program.write_text(JAVA, "utf-8")
    return ["java", "-cp", f"{library}:{jars}", program], {}


def sample(language: str, *words: str) -> Callable[[Path, Path, Path], Made]:
    def made(checkout: Path, _site: Path, folder: Path) -> Made:
        if shutil.which(words[0]) is None:
            missing(f"{words[0]} is missing: `make setup` installs what it can")
        copy = folder / language
        shutil.copytree(checkout / "examples" / language, copy)
        if language == "node":
            printed(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], copy)
        if language == "go":
            printed(["go", "build", "-o", "publish"], copy)
            return [copy / "publish"], {}
        return [words[0], copy / words[1]], {}

    return made


LANGUAGES: dict[str, Callable[[Path, Path, Path], Made]] = {
    "python": python,
    "php": php,
    "java": java,
    "go": sample("go", "go"),
    "node": sample("node", "node", "publish.mjs"),
    "ruby": sample("ruby", "ruby", "publish.rb"),
}


def test_six_languages_reach_a_reader_in_the_other_region(
    world: World, used: UsersWorld, unpacked: Path, site: Path, tmp_path: Path
) -> None:
    topic, url = f"news.users-{uuid.uuid4()}", world.amqp_url("oregon")
    tail = Tail(world, topic, region="dublin", count=len(LANGUAGES))
    for language, make in LANGUAGES.items():
        folder = tmp_path / language
        folder.mkdir()
        command, environ = make(unpacked, site, folder)
        body = [] if language in ("python", "php", "java") else [f'"{language}"']
        # The samples take the publisher's name and the body, too.
        words = [*command, url, *(["cms"] if body else []), topic, *body]
        printed(words, folder, environ)
    assert sorted(message["body"] for message in tail.messages()) == sorted(LANGUAGES)
    known = used.run("publish", topic, '"cli"', "--region", "dublin")
    assert known.returncode == 0, known.stderr
    assert "is kept from before" not in known.stderr


def test_a_topic_that_nobody_has_used_is_named_once(used: UsersWorld) -> None:
    topic = f"news.users-{uuid.uuid4()}"
    first, second = (used.run("publish", topic, "1") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert f"nothing of {topic} is kept from before: a new topic" in first.stderr
    assert "is kept from before" not in second.stderr
