"""Programs that publish by our libraries, one for each language: their command lines.

Each program takes SETTINGS and reads messages; tests/clients/driver.py describes both.
"""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from newsfabric.errors import SetupError

ROOT: Final = Path(__file__).resolve().parent.parent
JAVA: Final = ROOT / "clients" / "java"
PHP_DRIVER: Final = ROOT / "clients" / "php" / "tests" / "driver.php"
PYTHON_DRIVER: Final = ROOT / "tests" / "clients" / "driver.py"
#: The file of Debian's package; with Composer it is elsewhere, required before our autoload.php.
PHP_AMQPLIB: Final = Path("/usr/share/php/PhpAmqpLib/autoload.php")

LANGUAGES: Final = ("python-async", "python-sync", "java", "php")


def command(language: str) -> list[str]:
    """Return the command of the program in ``language``, compiled; SetupError without tools."""
    if language == "java":
        return ["java", "-cp", java_classpath(), "io.newsfabric.publish.Driver"]
    if language == "php":
        if shutil.which("php") is None or not PHP_AMQPLIB.exists():
            raise SetupError("PHP is missing: install php-cli and php-amqplib")
        return ["php", str(PHP_DRIVER)]
    return [sys.executable, str(PYTHON_DRIVER), language.removeprefix("python-")]


@functools.cache
def java_classpath() -> str:
    """Return the class path of the compiled Java library and its tests; SetupError without one."""
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        raise SetupError("Java is missing: install default-jdk-headless and maven")
    target = JAVA / "target"
    file = target / "classpath"
    target.mkdir(exist_ok=True)
    # Of several processes that need it at once, one builds and the others wait.
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_newest(file):
            _build_java(file)
    return f"{target}/classes:{target}/test-classes:{file.read_text('utf-8')}"


def _is_newest(file: Path) -> bool:
    """Return whether ``file`` is newer than all its sources. Maven takes a while to see that."""
    if not file.exists():
        return False
    sources = [JAVA / "pom.xml", *(JAVA / "src").rglob("*")]
    jars = [Path(jar) for jar in file.read_text("utf-8").split(":")]
    made = file.stat().st_mtime
    return all(jar.exists() for jar in jars) and all(s.stat().st_mtime < made for s in sources)


def _build_java(file: Path) -> None:
    """Compile the library and its tests; write the class path of the jars they need to ``file``."""
    file.unlink(missing_ok=True)
    built = subprocess.run(
        [
            *("mvn", "-q", "-B", "test-compile", "dependency:build-classpath"),
            *(f"-Dmdep.outputFile={file}", "-Dmdep.includeScope=test"),
        ],
        check=False,
        cwd=JAVA,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if built.returncode:
        raise SetupError(f"the Java library can't be built: {built.stdout}{built.stderr}")
