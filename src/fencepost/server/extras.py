"""Packages that only some brokers need: the extra `security` brings them."""

from __future__ import annotations

from importlib import import_module

from fencepost.broker.config import BadSetting


def require(package: str, setting: str) -> None:
    """Raises BadSetting if the package is missing that the setting needs."""
    try:
        import_module(package)
    except ModuleNotFoundError:
        raise BadSetting(
            f"{setting} needs the Python package {package}, which is not installed\n\n"
            "hint: pip install 'fencepost[security]'"
        ) from None
