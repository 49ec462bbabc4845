"""The requirements that `pip install 'fencepost[demo]'` does not install: PySpark and Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from fencepost.demo.report import DemoFailed

OLDEST_JAVA = 17
PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy")


def check_pyspark() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise DemoFailed(f"not installed: {', '.join(missing)}", "pip install 'fencepost[demo,spark-local]'")


def find_java() -> Path:
    """The home of a Java installation that Spark can use: JAVA_HOME, or that of the `java` on the PATH."""
    if named := os.environ.get("JAVA_HOME"):
        home, where = Path(named), f"JAVA_HOME={named}"
    elif on_path := shutil.which("java"):
        home = Path(on_path).resolve().parent.parent
        where = str(home)
    else:
        raise DemoFailed(f"Spark needs Java {OLDEST_JAVA} or newer, and there is no java on the PATH", _HINT)
    version = java_version(home)
    if version is None:
        raise DemoFailed(f"Spark needs Java {OLDEST_JAVA} or newer, and {where} contains no working Java", _HINT)
    if version < OLDEST_JAVA:
        raise DemoFailed(f"Spark needs Java {OLDEST_JAVA} or newer, and {where} is Java {version}", _HINT)
    return home


def java_version(home: Path) -> int | None:
    try:
        said = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Before Java 9, the first number was always 1: Java 8 says 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


_HINT = (
    f"install a JDK (Debian, Ubuntu: apt-get install openjdk-{OLDEST_JAVA}-jdk-headless; "
    f"macOS: brew install openjdk@{OLDEST_JAVA}), or set JAVA_HOME"
)
