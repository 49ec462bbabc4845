"""Packages that only some brokers need: the extra `security` brings them."""

from __future__ import annotations

from importlib.util import find_spec

from fencepost.broker.config import BadSetting


def require(package: str, setting: str) -> None:
    """Raises BadSetting if the package is missing that the setting needs."""
    if find_spec(package) is None:
        raise BadSetting(
            f"{setting} needs the Python package {package}, which is not installed\n\n"
            "hint: pip install 'fencepost[security]'"
        )
