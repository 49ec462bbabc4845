"""Files of a data folder are gone: the broker refuses to start, or starts without them if the loss is accepted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.testing import BrokerFailed
from tests.command_line import run_fencepost
from tests.e2e.test_recovery import COMMITTED, GROUP, OFFSETS_LOG, PROVEN_BY_SEGMENTS, TXN_ID, TXN_LOG, Left, leave
from tests.readers.reading import committed_offsets, connect, end_offsets, read_all
from tests.wire.tv2_client import Tv2Client

ACCEPT = {"fencepost.recovery.missing": "accept"}


# A clean stop leaves more to compare with; what a kill leaves is tried in `make test-engines`.
@pytest.fixture(scope="module", params=[pytest.param("kill", marks=pytest.mark.engines), "stop"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """A folder with several segments of `orders-0`, a group's offset and an open transaction."""
    return leave(tmp_path_factory.mktemp(request.param) / "data", request.param)


def logs(data: Path, name: str = "orders-0") -> list[Path]:
    return sorted((data / name).glob("*.log"))


def unlink(*paths: Path) -> None:
    for path in paths:
        path.unlink()


LOSSES: dict[str, Callable[[Path], object]] = {
    "the folder": lambda data: shutil.rmtree(data / "orders-0"),
    "all segments": lambda data: unlink(*logs(data)),
    "a segment in the middle": lambda data: unlink(logs(data)[1]),
    "the state of a transaction": lambda data: shutil.rmtree(data / TXN_LOG),
    "a group's offsets": lambda data: unlink(*logs(data, OFFSETS_LOG)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_refused_with_both_values_and_accepted_on_demand(
    loss: str, left: Left, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with left.copied_to(tmp_path / "data") as broker:
        data = tmp_path / "data"
        LOSSES[loss](data)
        for _ in range(2):
            with pytest.raises(BrokerFailed, match=f"the data folder {data} has less than its own records say"):
                broker.start()
        done = run_fencepost("broker", "--data", data, "--listen", "127.0.0.1:0")
        assert (done.returncode, done.stdout) == (1, "")
        assert "hint: " in done.stderr
        assert "--set fencepost.recovery.missing=accept" in done.stderr
        lines = [line for line in done.stderr.splitlines() if ": " in line and "-" in line.split(":")[0]]
        assert len([line for line in lines if line.split(":")[0] in ("orders-0", TXN_LOG, OFFSETS_LOG)]) == 1

        broker.settings |= ACCEPT
        broker.start()
        assert ": accepted" in broker.log
        if loss != "a group's offsets":
            assert committed_offsets(broker.bootstrap_servers, GROUP, "orders") == {0: 2}
        client = Tv2Client(broker.bootstrap_servers, TXN_ID)
        client.init()
        with connect(broker.bootstrap_servers) as raw:
            before = end_offsets(raw, ["orders"])[("orders", 0)]
        # A record of the end is made by a clean stop, and before that with every segment.
        proven = 200 if request.node.callspec.params["left"] == "stop" else PROVEN_BY_SEGMENTS
        assert before >= proven, "offsets are not handed out again"
        assert client.produce({("orders", 0): ["more"]}) == 0
        assert client.end(True) == 0
        values = [seen.value for seen in read_all(broker.bootstrap_servers, ["orders"])]
        assert values[-1] == "more"
        if "segments" not in loss and loss != "the folder":
            kept = [value for value in COMMITTED if value in values]
            assert len(kept) > len(COMMITTED) // 2, "what is there is served"
        broker.stop()

        del broker.settings["fencepost.recovery.missing"]
        log = broker.log
        broker.start()
        assert "missing" not in broker.log[len(log) :]
        assert [seen.value for seen in read_all(broker.bootstrap_servers, ["orders"])] == values
        broker.kill()
        broker.start()
        assert [seen.value for seen in read_all(broker.bootstrap_servers, ["orders"])] == values
