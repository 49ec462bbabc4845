"""`fencepost user`: users of a running broker, and of one that is stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.cli import main
from fencepost.client.client import KafkaClient
from fencepost.client.failures import AuthenticationFailed
from fencepost.testing import Broker

SETTINGS = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text("open sesame\n")
    return path


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs one command in this process."""

    def run(*arguments: str) -> Done:
        code = main(arguments)
        return Done(code, *capsys.readouterr())

    return run


def client_settings(broker: Broker, user: str, password: str = "open sesame") -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }


def can_log_in(broker: Broker, user: str, password: str = "open sesame") -> bool:
    try:
        with KafkaClient(client_settings(broker, user, password)) as client:
            return bool(client.brokers())
    except AuthenticationFailed:
        return False


def test_the_first_user_is_added_before_the_broker_starts_and_adds_the_others(
    tmp_path: Path, secret: Path, run: Run
) -> None:
    data = tmp_path / "data"
    done = run("user", "add", "admin", "--data", str(data), "--password-file", str(secret))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "user admin can log in by SCRAM-SHA-256 and SCRAM-SHA-512\n"
    listed = run("user", "list", "--data", str(data), "--json")
    assert json.loads(listed.stdout) == {
        "users": [
            {
                "user": "admin",
                "credentials": [
                    {"mechanism": "SCRAM-SHA-256", "iterations": 4096},
                    {"mechanism": "SCRAM-SHA-512", "iterations": 4096},
                ],
            }
        ]
    }
    with Broker(data=data, settings=SETTINGS) as broker:
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in client_settings(broker, "admin").items()))
        here = ["--command-config", str(config)]
        added = run("user", "add", "bob", "--password-file", str(secret), "--iterations", "8192", *here)
        assert added.returncode == 0, added.stderr
        assert can_log_in(broker, "bob")
        assert not can_log_in(broker, "bob", "open barley")
        assert not can_log_in(broker, "eve")
        listed = run("user", "list", *here)
        assert [line.split() for line in listed.stdout.splitlines()] == [
            ["USER", "MECHANISM", "ITERATIONS"],
            ["admin", "SCRAM-SHA-256", "4096"],
            ["admin", "SCRAM-SHA-512", "4096"],
            ["bob", "SCRAM-SHA-256", "8192"],
            ["bob", "SCRAM-SHA-512", "8192"],
        ]
        deleted = run("user", "delete", "bob", "--yes", *here)
        assert deleted.returncode == 0, deleted.stderr
        assert not can_log_in(broker, "bob")
        # A running broker keeps its document to itself.
        refused = run("user", "add", "eve", "--data", str(data), "--password-file", str(secret))
        assert refused.returncode == 1
        assert "hint: stop that broker, or name it with --bootstrap instead of --data" in refused.stderr
    again = run("user", "delete", "bob", "--data", str(data), "--yes")
    assert (again.returncode, again.stderr.splitlines()[0]) == (1, "error: there is no user bob")


def described(data: Path) -> object:
    """The cluster by its document, however often that was saved."""
    document = json.loads((data / "fencepost.metadata").read_text())
    return {name: value for name, value in document.items() if name not in ("revision", "crc32c")}


def test_a_user_that_is_added_to_a_stopped_broker_does_not_disturb_its_data(
    tmp_path: Path, secret: Path, run: Run
) -> None:
    data = tmp_path / "data"
    with Broker(data=data, topics={"orders": 3}):
        pass
    document = described(data)
    assert run("user", "add", "bob", "--data", str(data), "--password-file", str(secret)).returncode == 0
    assert run("user", "delete", "bob", "--data", str(data), "--yes").returncode == 0
    assert described(data) == document
    assert run("user", "add", "bob", "--data", str(data), "--password-file", str(secret)).returncode == 0
    with Broker(data=data, settings=SETTINGS) as broker:
        assert can_log_in(broker, "bob")
        assert broker.warnings == []


def test_a_broker_without_users_says_that_no_client_can_log_in() -> None:
    with Broker(settings=SETTINGS) as broker:
        assert broker.warnings == [
            "no client can log in at the listener SASL_PLAINTEXT: there are no users; `fencepost user add` adds one"
        ]


def test_a_password_comes_from_a_file_or_a_terminal_and_never_from_an_argument(tmp_path: Path, run: Run) -> None:
    data = str(tmp_path / "data")
    none = run("user", "add", "bob", "--data", data)
    assert (none.returncode, none.stderr.splitlines()[0]) == (2, "error: no password")
    missing = run("user", "add", "bob", "--data", data, "--password-file", str(tmp_path / "none"))
    assert missing.returncode == 2
    assert "No such file" in missing.stderr
    (tmp_path / "empty").touch()
    empty = run("user", "add", "bob", "--data", data, "--password-file", str(tmp_path / "empty"))
    assert empty.returncode == 2
    assert "is empty" in empty.stderr


def test_a_folder_with_logs_and_without_a_document_gets_no_user(tmp_path: Path, secret: Path, run: Run) -> None:
    (tmp_path / "data" / "orders-0").mkdir(parents=True)
    done = run("user", "add", "bob", "--data", str(tmp_path / "data"), "--password-file", str(secret))
    assert done.returncode == 1
    assert "has files (orders-0 ...), but not the document of a cluster" in done.stderr


def test_a_folder_and_a_cluster_together_are_refused(
    tmp_path: Path, secret: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    folder, cluster = ["--data", str(data)], ["--bootstrap", "127.0.0.1:1"]
    for words in (["add", "bob", "--password-file", str(secret)], ["list"], ["delete", "bob", "--yes"]):
        refused = run("user", *words, *folder, *cluster)
        assert (refused.returncode, refused.stderr.splitlines()[0]) == (
            2,
            f"error: both --data {data} and --bootstrap 127.0.0.1:1",
        )
    assert not data.exists()
    # A cluster that is exported for all commands is no choice.
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", "127.0.0.1:1")
    assert run("user", "add", "bob", "--password-file", str(secret), *folder).returncode == 0
