"""The arguments of `fencepost verify cluster`."""

from __future__ import annotations

import pytest

from fencepost.cli import main
from fencepost.cli.verify.cluster import parse_clients, parse_faults
from fencepost.verify.nemesis.schedule import FAULTS


def test_faults_are_all_unless_some_are_named() -> None:
    assert parse_faults(None) == FAULTS
    assert parse_faults("kill, zombie,kill") == ("kill", "zombie")
    assert parse_faults("none") == ()


def test_clients_are_kinds_with_numbers() -> None:
    assert parse_clients("librdkafka=3, fencepost-v2") == {"librdkafka": 3, "fencepost-v2": 1}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--clients", "sarama=1"), "'sarama' is none of librdkafka"),
        (("--clients", "librdkafka=0"), "does not say how many"),
        (("--clients", "librdkafka=x"), "does not say how many"),
        (("--faults", "fire"), "'fire' is none of network"),
        (("--fault", "delay EndTxn"), "does not say how long"),
        (("--nemesis-every", "0s"), "too short"),
        (("--seconds", "0"), "0"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "cluster", "--bootstrap", "127.0.0.1:1", *arguments]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert "hint:" in said
