"""`fencepost error`."""

from __future__ import annotations

import json

import pytest

from fencepost.cli import main


def test_an_error_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["error", "-1", "--json"]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert (explained["name"], explained["effect"], explained["then"]) == ("UNKNOWN_SERVER_ERROR", "unknown", "abort")
    assert main(["error", "--list"]) == 0
    assert "PRODUCER_FENCED" in capsys.readouterr().out
    assert main(["error", "101"]) == 0
    assert "A transactional client does not receive this error." in capsys.readouterr().out
    assert main(["error", "PRODUCER_FENCD"]) == 1
    assert "hint: did you mean PRODUCER_FENCED" in capsys.readouterr().err
