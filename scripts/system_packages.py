"""Installs packages of the operating system where that is allowed: as root, by sudo without a password, by Homebrew."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from contextlib import suppress
from typing import NamedTuple

from scripts.quietly import StepFailed, step


class Names(NamedTuple):
    """The names of a package, by package manager; the first that a release of the system still carries is taken.

    A name may begin with an option of the package manager.
    """

    apt: list[str]
    dnf: list[str]
    brew: list[str]


def as_root() -> list[str] | None:
    """How to run a command as root without a password; None when that is not allowed."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    if shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True, check=False).returncode == 0:
        return sudo
    return None


def install_first_of(command: list[str], packages: list[str]) -> None:
    """Install the first package that this release of the system still carries."""
    *earlier, last = packages
    for package in earlier:
        try:
            step(f"installing {package}", [*command, *package.split()])
            return
        except StepFailed:
            continue
    step(f"installing {last}", [*command, *last.split()])


def install(names: Names) -> None:
    """Install a package with the system's package manager. Raises StepFailed when there is no way to."""
    if platform.system() == "Darwin":
        if not shutil.which("brew"):
            raise StepFailed("Homebrew is not installed")
        install_first_of(["brew", "install"], names.brew)
        return
    root = as_root()
    if root is None:
        raise StepFailed("no right to install packages (not root, and sudo asks for a password)")
    if shutil.which("apt-get"):
        # sudo drops the environment, so the answer to apt's questions goes through env(1).
        apt = [
            *root,
            "env",
            "DEBIAN_FRONTEND=noninteractive",
            "apt-get",
            "-qq",
            "-y",
            "--no-install-recommends",
        ]
        # One dead source among many fails the update, and the package may come from another.
        with suppress(StepFailed):
            step("updating the package lists", [*apt, "update"])
        install_first_of([*apt, "install"], names.apt)
    elif shutil.which("dnf"):
        install_first_of([*root, "dnf", "-q", "-y", "install"], names.dnf)
    else:
        raise StepFailed("no package manager that this script knows (apt-get, dnf, brew)")
