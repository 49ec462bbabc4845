"""Find Chromium, or install it where that is allowed, and write its path to `.tools/chromium`.

Looks at CHROMIUM, then PATH, then the usual places. Without it everything but the browser tests works, so the script
only prints one line that says what to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.quietly import TOOLS, StepFailed, say
from scripts.system_packages import Names, install

PACKAGES = Names(apt=["chromium", "chromium-browser"], dnf=["chromium-headless", "chromium"], brew=["--cask chromium"])
COMMANDS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "headless_shell")
USUAL_PLACES = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/headless_shell",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)


def candidates() -> Iterator[Path]:
    if named := os.environ.get("CHROMIUM"):
        yield Path(named)
    for command in COMMANDS:
        if found := shutil.which(command):
            yield Path(found)
    yield from map(Path, USUAL_PLACES)


def runs(browser: Path) -> bool:
    """Whether it starts. On Ubuntu, `chromium-browser` may be a script that only asks to install another package."""
    if not os.access(browser, os.X_OK):
        return False
    try:
        said = subprocess.run([browser, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0 and "Chrom" in said.stdout


def find() -> Path | None:
    return next((browser for browser in candidates() if runs(browser)), None)


def main() -> int:
    browser = find()
    reason = ""
    if browser is None:
        try:
            install(PACKAGES)
        except StepFailed as failure:
            reason = str(failure).splitlines()[0]
        browser = find()
    TOOLS.mkdir(exist_ok=True)
    record = TOOLS / "chromium"
    if browser is not None:
        record.write_text(f"{browser}\n")
        return 0
    record.unlink(missing_ok=True)
    why = f"; not installed for you: {reason}" if reason else ""
    say(
        "note: no Chromium, so the browser tests are skipped; install it (Debian: apt-get install chromium; macOS: "
        f"brew install --cask chromium) or set CHROMIUM to its path{why}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
