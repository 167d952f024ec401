"""Each artefact installed into an empty environment, and the first example of its README tried.

An environment is a folder outside the checkout with a home of its own. Dependencies are fetched
from the registries, so a rehearsal without a network fails. No example reaches a broker here: code
that needs one is made and compiled, but sends nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from release.artefacts import wheel
from release.steps import Failed, Release, nearly_empty, need, run

_DEBIAN_AMQPLIB: Final = Path("/usr/share/php/PhpAmqpLib/autoload.php")


def python_of_wheel(release: Release) -> Path:
    """Return the Python of the venv that :func:`rehearse_wheel` has made."""
    return release.work / "venv" / "bin" / "python"


def rehearse_wheel(release: Release) -> str:
    """Try `pip install` of the wheel; the data plane starts; `up` reports the missing broker."""
    python, home = python_of_wheel(release), release.work / "wheel-home"
    environ = nearly_empty(home)
    # Without pip: the SBOM is of this venv, and newsfabric doesn't bring pip.
    make: list[str | Path] = [sys.executable, "-m", "venv", "--without-pip", python.parents[1]]
    run(make, release.work, environ=environ)
    install: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
    ]
    run([*install, wheel(release)], home, environ=environ)
    command = python.with_name("newsfabric")
    # A user with nothing else has no RabbitMQ either, and perhaps nothing on the PATH.
    bare = {"HOME": str(home), "PATH": "", "NEWSFABRIC_ROOTLESS": "1"}
    version = run([command, "--version"], home, environ=bare).split()[-1]
    if version != release.version:
        raise Failed(f"newsfabric --version says {version}, not {release.version}")
    find = "from gateway.native.program import find_program; print(find_program())"
    program = run([python, "-c", find], home, environ=bare).strip()
    # For an unknown option the program prints its usage, and exits with 2.
    run([program, "--help"], home, environ=bare, good=(2,))
    done = subprocess.run(
        [command, "up", "--detach"],
        cwd=home,
        env=bare,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 1 or "apt-get install rabbitmq-server" not in done.stderr:
        raise Failed(f"`newsfabric up` doesn't say how to get RabbitMQ:\n{done.stderr.strip()}")
    return f"{version} in an empty venv; the data plane runs; `up` says how to get RabbitMQ"


def rehearse_npm(release: Release) -> str:
    """Try `npm install` of the package; both forms of it offer `connect`."""
    npm = need("npm", "install the packages nodejs and npm")
    (package,) = release.dist.glob("newsfabric-*.tgz")
    home = release.work / "npm"
    environ = nearly_empty(home)
    (home / "package.json").write_text('{"name": "reader", "private": true, "type": "module"}')
    run([npm, "install", "--no-audit", "--no-fund", package], home, environ=environ)
    (home / "try.mjs").write_text(
        """import {readFileSync} from "node:fs";
import {runInNewContext} from "node:vm";
import {connect} from "newsfabric";
const script = readFileSync("node_modules/newsfabric/dist/newsfabric.js", "utf-8");
const page = runInNewContext(`${script}; newsfabric`, {});
console.log(JSON.stringify([typeof connect, typeof page.connect]));
"""
    )
    output = json.loads(run(["node", "try.mjs"], home, environ=environ))
    if output != ["function", "function"]:
        raise Failed(f"connect is {output[0]} in the module and {output[1]} in the script")
    return "npm install in an empty project; module and script both have connect()"


def rehearse_composer(release: Release) -> str:
    """Try `composer install` of the archive; the README's publisher is made.

    With Debian's php-amqplib if it is installed, the README's first choice; otherwise Packagist's.
    """
    composer = need("composer", "install the packages php-cli and composer")
    (archive,) = release.dist.glob("newsfabric-publish-php-*.zip")
    home = release.work / "composer"
    environ = nearly_empty(home) | {"COMPOSER_ALLOW_SUPERUSER": "1"}
    manifest = json.loads((release.root / "clients" / "php" / "composer.json").read_text())
    package = manifest | {
        "version": release.version,
        "dist": {"type": "zip", "url": archive.as_uri()},
    }
    project: dict[str, Any] = {
        "repositories": [{"type": "package", "package": package}],
        "require": {manifest["name"]: release.version},
    }
    head = "<?php\nrequire 'vendor/autoload.php';\n"
    if _DEBIAN_AMQPLIB.is_file():
        project["repositories"].append({"packagist.org": False})
        project["provide"] = {"php-amqplib/php-amqplib": "3.5"}
        head += f"require '{_DEBIAN_AMQPLIB}';\n"
    (home / "composer.json").write_text(json.dumps(project))
    run([composer, "install", "--no-interaction", "--no-progress"], home, environ=environ)
    example = first_example(release.root / "clients" / "php" / "README.md", "php")
    (home / "whole.php").write_text(head + example)
    run(["php", "-l", "whole.php"], home, environ=environ)
    # Up to the line that would send.
    making = example[: example.index("$published =")]
    (home / "try.php").write_text(f"{head}{making}\necho get_class($publisher);\n")
    output = run(["php", "try.php"], home, environ=environ)
    if output != "Newsfabric\\Publisher":
        raise Failed(f"the README's publisher is: {output}")
    return "composer install in an empty project; the README's publisher is made, nothing sent"


def rehearse_maven(release: Release) -> str:
    """Try a project that depends on our coordinates; the README's example compiles."""
    mvn = need("mvn", "install the packages default-jdk-headless and maven")
    home = release.work / "maven"
    environ = nearly_empty(home)
    folder = home / "src" / "main" / "java"
    folder.mkdir(parents=True)
    readme = release.root / "clients" / "java" / "README.md"
    (home / "pom.xml").write_text(
        f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>example</groupId><artifactId>desk</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <repositories><repository>
    <id>release</id><url>{(release.dist / "maven").as_uri()}</url>
  </repository></repositories>
  <dependencies>{first_example(readme, "xml")}</dependencies>
</project>
"""
    )
    (folder / "Desk.java").write_text(
        "import io.newsfabric.publish.*;\nimport java.util.List;\n"
        "class Desk {\n  public static void main(String[] arguments) throws Exception {\n"
        f"{first_example(readme, 'java')}\n  }}\n}}\n"
    )
    # A repository of its own: the home's may hold an older build of the same version.
    command = [mvn, "--batch-mode", "--quiet", f"-Dmaven.repo.local={home / 'repository'}"]
    run([*command, "compile"], home, environ=environ)
    if not (home / "target" / "classes" / "Desk.class").is_file():
        raise Failed("mvn compile made no class of the README's example")
    return "an empty project resolves the coordinates; the README's example compiles, nothing sent"


def first_example(readme: Path, language: str) -> str:
    """Return the first fenced block of ``language`` in a Markdown file."""
    found = re.search(
        rf"^```{language}\n(.*?)^```$", readme.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise Failed(f"{readme.name} of {readme.parent.name} has no example in {language}")
    return found[1]
