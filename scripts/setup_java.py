"""Find Java 17 or newer, or install it where that is allowed, and write its home to `.tools/java-home`.

Looks at JAVA_HOME, then PATH, then the usual places. Without Java everything but Apache Kafka and Spark works, so the
script only prints one line that says what to install. With `--needed` it also fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.quietly import TOOLS, StepFailed, say
from scripts.system_packages import Names, install

OLDEST = 17
PACKAGES = Names(
    apt=["openjdk-17-jdk-headless", "default-jdk-headless"],
    dnf=["java-17-openjdk-devel", "java-21-openjdk-devel", "java-latest-openjdk-devel"],
    brew=["openjdk@17"],
)
USUAL_PLACES = [
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
]


def candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    # macOS has a /usr/bin/java that only opens a window; `version` then finds nothing.
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for place in USUAL_PLACES:
        pattern = Path(place).expanduser()
        yield from sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))), reverse=True)


def version(home: Path) -> int | None:
    """The major version of the Java in `home`; None when there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Before Java 9, the first number was always 1: Java 8 says 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def find() -> tuple[Path | None, list[str]]:
    """The best Java that is new enough, and those that were passed over.

    One with a compiler is better: the tests of the Java client come as source files.
    """
    good: list[Path] = []
    too_old: list[str] = []
    for home in dict.fromkeys(candidates()):
        major = version(home)
        if major is not None and major >= OLDEST:
            good.append(home)
            if (home / "bin" / "javac").exists():
                return home, too_old
        elif major is not None:
            too_old.append(f"Java {major} in {home}")
    return (good[0] if good else None), too_old


def main() -> int:
    home, too_old = find()
    reason = ""
    if home is None:
        try:
            install(PACKAGES)
        except StepFailed as failure:
            reason = str(failure).splitlines()[0]
        home, too_old = find()
    TOOLS.mkdir(exist_ok=True)
    record = TOOLS / "java-home"
    if home is not None:
        record.write_text(f"{home}\n")
        return 0
    record.unlink(missing_ok=True)
    found = f" (found only {', '.join(too_old)})" if too_old else ""
    why = f"; not installed for you: {reason}" if reason else ""
    is_needed = "--needed" in sys.argv[1:]
    so = "and Spark needs one" if is_needed else "so the tests that need it are skipped"
    say(
        f"{'error' if is_needed else 'note'}: no Java {OLDEST} or newer{found}, {so}; install a JDK "
        "(Debian, Ubuntu: apt-get install openjdk-17-jdk-headless; macOS: brew install openjdk@17) "
        f"or set JAVA_HOME{why}"
    )
    return 1 if is_needed else 0


if __name__ == "__main__":
    sys.exit(main())
