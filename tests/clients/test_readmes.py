"""The READMEs of the publishers' libraries and their examples, pasted without a change."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from client_programs import program
from client_regions import ClientRegions

from bench.drivers import JAVA, PHP_AMQPLIB, ROOT, java_classpath
from newsfabric.settings import Node
from newsfabric.topics import PublisherRights

# Maven may take a minute on a busy machine.
pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

PATIENCE = 300.0
WRITTEN = "amqp://cms:secret@{}/%2F"
JAVA_PROGRAM = """import io.newsfabric.publish.*;
import java.util.List;
public class Readme {{ public static void main(String[] arguments) {{
{}
}} }}
"""
# Packagist, as far as this machine has it.
COMPOSER = """{
    "repositories": [
        {"packagist.org": false},
        {"type": "package", "package": {
            "name": "php-amqplib/php-amqplib", "version": "3.5.3",
            "dist": {"type": "path", "url": "%s"}, "autoload": {"files": ["autoload.php"]}
        }}
    ]
}"""


@pytest.fixture
async def regions(rabbitmq: Node) -> AsyncIterator[ClientRegions]:
    async with ClientRegions.on(rabbitmq) as made:
        yield made


def block(language: str, kind: str) -> str:
    """The README's only code block of that kind."""
    readme = (ROOT / "clients" / language / "README.md").read_text("utf-8")
    (found,) = re.findall(rf"```{kind}\n(.+?)```", readme, re.DOTALL)
    return str(found)


async def run(command: Sequence[str], *, cwd: Path) -> str:
    """Return the output; fail the test if the command fails, or prints a warning.

    SLF4J, by which Java's library logs, warns about a program that has no logger.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COMPOSER_ALLOW_SUPERUSER": "1"},
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, err.decode() + out.decode()
    assert "SLF4J" not in err.decode()
    return out.decode()


async def paste(regions: ClientRegions, code: str, command: Sequence[str], file: Path) -> None:
    """Run ``code`` in ``file`` with our brokers for the README's; it must print an identity."""
    oregon, dublin = await regions("oregon"), await regions("dublin")
    for region, hosts in ((oregon, ("oregon-1", "oregon-2")), (dublin, ("dublin-1",))):
        url = await region.user(PublisherRights("cms", ("news.#",)))
        for host in hosts:
            assert WRITTEN.format(host) in code
            code = code.replace(WRITTEN.format(host), url)
    await asyncio.to_thread(file.write_text, code, "utf-8")
    printed = await run([*command, str(file)], cwd=file.parent)
    # Copies of one message, in both regions, if the first confirmed it late.
    message = (oregon.seen + dublin.seen)[0]
    assert printed.strip() == "2743aa7ac79215815ab"
    assert message.topic == "news.breaking"
    assert message.properties.headers["key"] == "story-1"


async def test_python(regions: ClientRegions, tmp_path: Path) -> None:
    await paste(regions, block("python", "python"), [sys.executable], tmp_path / "readme.py")


async def test_php(regions: ClientRegions, tmp_path: Path) -> None:
    program("php")
    code = f"<?php\nrequire '{ROOT}/clients/php/autoload.php';\n{block('php', 'php')}"
    await paste(regions, code, ["php"], tmp_path / "readme.php")


async def test_java(regions: ClientRegions, tmp_path: Path) -> None:
    program("java")
    code = JAVA_PROGRAM.format(block("java", "java"))
    await paste(regions, code, ["java", "-cp", java_classpath()], tmp_path / "Readme.java")


def coordinates(element: ElementTree.Element) -> tuple[str | None, ...]:
    """Return the Maven artifact that ``element`` is or requests."""
    return tuple(element.findtext(f"{{*}}{name}") for name in ("groupId", "artifactId", "version"))


def test_the_tests_run_with_the_logger_that_the_java_readme_names() -> None:
    pom = ElementTree.parse(JAVA / "pom.xml").getroot()
    readme = (JAVA / "README.md").read_text("utf-8")
    snippets = re.findall(r"```xml\n(<dependency>.+?)```", readme, re.DOTALL)
    library, logger = (coordinates(ElementTree.fromstring(text)) for text in snippets)
    assert library == coordinates(pom)
    assert logger[1] == "slf4j-simple"
    assert logger in [coordinates(found) for found in pom.iterfind(".//{*}dependency")]


async def test_php_by_composer(regions: ClientRegions, tmp_path: Path) -> None:
    program("php")
    if shutil.which("composer") is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have Composer, `make setup` installs it")
        pytest.skip("Composer is missing: install composer")
    (tmp_path / "composer.json").write_text(COMPOSER % PHP_AMQPLIB.parent, "utf-8")
    commands = block("php", "sh").replace("/path/to/newsfabric", str(ROOT))
    await run(["bash", "-ec", commands], cwd=tmp_path)
    code = f"<?php\nrequire 'vendor/autoload.php';\n{block('php', 'php')}"
    await paste(regions, code, ["php"], tmp_path / "readme.php")


async def test_composer_finds_nothing_wrong_with_the_package() -> None:
    if shutil.which("composer") is None:
        if os.environ.get("CI"):
            pytest.fail("CI must have Composer, `make setup` installs it")
        pytest.skip("Composer is missing: install composer")
    await run(["composer", "validate", "--strict"], cwd=ROOT / "clients" / "php")


def without_maven(command: str) -> str:
    """Return the command that Maven would run, for which it takes a minute on a busy machine."""
    pom = ElementTree.parse(JAVA / "pom.xml")
    (main,) = pom.iterfind(".//{*}exec.mainClass")
    before, _, arguments = command.partition("-Dexec.args=")
    assert before == "mvn -q test-compile exec:java "
    assert not arguments.startswith("-")
    return f"java -cp {java_classpath()} {main.text} {arguments}"


@pytest.mark.parametrize(
    ("language", "cwd"),
    [("python", ROOT), ("php", ROOT / "clients" / "php"), ("java", JAVA)],
)
async def test_the_example_to_try(regions: ClientRegions, language: str, cwd: Path) -> None:
    program("python-sync" if language == "python" else language)
    readme = (ROOT / "clients" / language / "README.md").read_text("utf-8")
    found = re.search(r"Try it: `(.+?)`", readme)
    assert found is not None
    region = await regions("oregon")
    assert "amqp://127.0.0.1:18110/%2F" in found[1]
    command = found[1].replace("amqp://127.0.0.1:18110/%2F", region.url)
    python, _, rest = command.partition(" ")
    command = f"{sys.executable} {rest}" if python == "python" else command
    if language == "java":
        command = without_maven(command)
    printed = await run(["bash", "-ec", command], cwd=cwd)
    assert printed == "2743aa7ac79215815ab\n"
    # A message whose receipt was late was sent again, under the same id.
    assert len({message.properties.message_id for message in region.seen}) == 1
