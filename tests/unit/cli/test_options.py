"""The options that several commands share: durations, the cluster, and the answer to wrong calls."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from fencepost.cli import main
from fencepost.cli.options import ClusterOptions, Duration


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("2 h", 7_200_000), ("7d", 604_800_000)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert Duration().convert(text, None, None) == ms


@pytest.mark.parametrize("text", ["10", "s", "-1s", "1w", "1m30s", "", "²s", "٣s"])
def test_any_other_text_is_not_a_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="such as 500ms"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize("text", ["25d", "99999999999d", "9" * 400 + "ms"])
def test_a_duration_that_is_too_long_is_refused_with_the_limit(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is too long: at most 24d"):
        Duration(24).convert(text, None, None)
    assert Duration().convert("90d", None, None) == 90 * 86_400_000


@pytest.mark.parametrize("command", ["txn lso --watch --every 0s", "exporter --every 0ms"])
def test_a_cluster_is_not_asked_without_a_pause(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--bootstrap", "127.0.0.1:1"]) == 2
    assert "is too short: at least 100ms" in capsys.readouterr().err


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\nbootstrap.servers=a:1\nsasl.username: me\nsasl.password = s3cr=t\n")
    options = ClusterOptions("b:2", str(file), ("sasl.username=you",))
    assert options.settings() == {"bootstrap.servers": "b:2", "sasl.username": "you", "sasl.password": "s3cr=t"}
    assert ClusterOptions(None, str(file), ()).settings()["bootstrap.servers"] == "a:1"


def test_settings_of_kafka_s_tools_without_effect_are_ignored_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=20000\nrequest.timeout.ms=5000\nretries=3\n")
    assert ClusterOptions("b:2", str(file), ()).settings() == {"bootstrap.servers": "b:2", "request.timeout.ms": "5000"}
    assert capsys.readouterr().err == (
        "warning: default.api.timeout.ms has no effect on this tool\nwarning: retries has no effect on this tool\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["txn", "list"], "no cluster is named"),
        (["txn", "list", "--bootstrap", ","], "--bootstrap=, names no broker"),
        (["txn", "list", "--bootstrap", "localhost:²"], "expected HOST:PORT"),
        (["txn", "list", "--bootstrap", "h:1", "--set", "ssl.enabled.protocols=x"], "hint: leave it out"),
        (["txn", "list", "--producer-id", str(2**63)], "is not in the range"),
        (["txn", "lso", "--watch", "--every", "99999999999d"], "99999999999d is too long: at most 24d"),
        (["txn", "producers", "orders:" + "9" * 5000], "is not a partition"),
        (["demo", "isolation", "--timeout", "99999d"], "99999d is too long: at most 24d"),
        (["broker", "--memory", "--listen", "h:" + "9" * 5000], "there is no port"),
        (["txn", "list", "--bootstrap", "localhost"], "error: --bootstrap has 'localhost', expected HOST:PORT"),
        (["txn", "list", "--bootstrap", "h:1", "--set", "nonsense"], "--set nonsense is not a setting"),
        (["txn", "list", "--bootstrap", "h:1", "--command-config", "/no/such/file"], "cannot read the settings"),
        (["txn", "list", "--id", "("], "is not a regular expression"),
        (["txn", "list", "--longer-than", "10"], "is not a duration"),
        (["txn", "producers", "orders:x"], "orders:x is not a partition"),
        (["txn", "abort"], "which transaction?"),
        (["txn", "abort", "--topic", "orders"], "which transaction?"),
        (["txn", "abort", "t1", "--topic", "orders", "--partition", "0"], "which transaction?"),
        (["txn", "abort", "t1", "--producer-id", "4"], "an ID has only one transaction"),
        (["error"], "which error?"),
        (["error", "47", "--list"], "both --list and 47"),
        (["error", "--nonsense"], "No such option: --nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_call_is_refused_before_the_cluster_is_asked(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FENCEPOST_BOOTSTRAP", raising=False)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert "\n\nhint: " in shown.err


def test_a_printed_command_names_the_cluster_as_the_user_did(tmp_path: Path) -> None:
    assert ClusterOptions("b:2", None, ()).command("txn", "explain", "a b") == (
        "fencepost txn explain 'a b' --bootstrap b:2"
    )
    assert ClusterOptions("b:2", "my file", ("request.timeout.ms=5",), is_exported=True).command("txn", "list") == (
        "fencepost txn list --command-config 'my file' --set request.timeout.ms=5"
    )
    assert ClusterOptions(None, "f", ()).command("txn", "list") == "fencepost txn list --command-config f"


def test_a_printed_command_has_no_secrets() -> None:
    given = ("sasl.username=me", "sasl.password=s3cret", 'sasl.jaas.config=password="s3cret"')
    printed = ClusterOptions("b:2", None, given, is_exported=True).command("txn", "list")
    assert printed == "fencepost txn list --set sasl.username=me --set sasl.password=... --set sasl.jaas.config=..."
    for name in (
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.config",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.truststore.password",
    ):
        assert "s3cret" not in ClusterOptions("b:2", None, (f"{name}=s3cret",)).command("txn", "list")


def test_an_unreachable_cluster_has_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["txn", "lso", "--max-age", "1s", "--bootstrap", "127.0.0.1:1"]) == 3
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err
