"""The unit for systemd that the guide offers: checked without being run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from fencepost.cli.broker import broker

UNIT = Path(__file__).resolve().parents[2] / "docs" / "guides" / "service" / "fencepost.service"
PROGRAM = "/opt/fencepost/bin/fencepost"


def read_unit() -> ConfigParser:
    unit = ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    return unit


def test_the_unit_starts_the_broker_with_options_that_exist() -> None:
    program, command, *arguments = shlex.split(read_unit()["Service"]["ExecStart"])
    assert (program, command) == (PROGRAM, "broker")
    given = broker.make_context("broker", arguments).params
    assert given["data"] == "/var/lib/fencepost"
    assert given["listen"] == "127.0.0.1:9092"


def test_the_unit_stops_the_broker_as_it_wants_to_be_stopped() -> None:
    unit = read_unit()
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert unit["Service"]["KillSignal"] == "SIGTERM"
    assert unit["Service"]["StateDirectory"] == "fencepost"
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / "fencepost.service"
    copy.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))  # It looks whether the program is there.
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "fencepost.service" in line]
    assert (done.returncode, said) == (0, [])
