"""`pip install fencepost` alone: everything but the demos and the sink works, and the demos say what they need."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.child import child_environment
from fencepost.testing import Broker, BrokerFailed
from tests.command_line import run_fencepost

# In the extras, or only in the groups for development.
EXTRAS = (
    "aiokafka", "aws_msk_iam_sasl_signer", "confluent_kafka", "cryptography", "hypothesis", "jwt", "kafka", "kio",
    "numpy", "pandas", "psutil", "pyarrow", "pyspark", "sse_starlette", "starlette", "uvicorn",
)  # fmt: skip
# The plugin is for pytest, which brings itself.
IMPORT_ALL = """
import importlib, pkgutil, fencepost
left_out = ("fencepost.demo", "fencepost.spark", "fencepost.testing.plugin", "fencepost.__main__")
# For certificates of clients and for tokens, which need the extra `security`.
left_out += ("fencepost.machines.auth.certificates", "fencepost.machines.auth.oauthbearer")
left_out += ("fencepost.machines.auth.oauthbearer", "fencepost.server.key_sets")
# The server of the workbench, which needs the extra `web`.
left_out += ("fencepost.web.app", "fencepost.web.guard", "fencepost.web.guard", "fencepost.web.serving")
# The clients of `verify cluster` that need the extra `verify`.
left_out += ("fencepost.verify.workload.librdkafka",)
for found in pkgutil.walk_packages(fencepost.__path__, "fencepost."):
    if not found.name.startswith(left_out):
        importlib.import_module(found.name)
print("all imported")
"""


@pytest.fixture
def without_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes find these packages in place of the real ones."""
    for name in EXTRAS:
        said = f"No module named {name!r}"
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError({said!r}, name={name!r})\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)


@pytest.mark.usefixtures("without_extras")
def test_every_module_but_the_demos_and_the_sink_can_be_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", IMPORT_ALL],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=child_environment(),
    )
    assert (done.stdout, done.stderr) == ("all imported\n", "")


@pytest.mark.usefixtures("without_extras")
def test_the_broker_and_the_tools_run() -> None:
    with Broker() as broker:
        listed = run_fencepost("txn", "list", "--bootstrap", broker.bootstrap_servers)
        assert (listed.returncode, listed.stderr) == (0, "no transactional ids that this user can see\n")
    assert run_fencepost("error", "90").returncode == 0


@pytest.mark.usefixtures("without_extras")
def test_a_broker_that_needs_an_extra_for_its_logins_says_so(tmp_path: Path) -> None:
    secured = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    with Broker(settings=secured):
        pass  # Neither SCRAM nor TLS needs more than Python has.
    with (
        pytest.raises(BrokerFailed, match=r"hint: pip install 'fencepost\[security\]'") as failed,
        Broker(settings=secured | {"sasl.enabled.mechanisms": "OAUTHBEARER"}),
    ):
        pass
    assert "sasl.enabled.mechanisms=OAUTHBEARER needs the Python package jwt" in str(failed.value)


@pytest.mark.usefixtures("without_extras")
def test_the_workbench_says_in_one_line_what_to_install() -> None:
    done = run_fencepost("web", "--bootstrap", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"error: not installed: \w+\n\nhint: pip install 'fencepost\[web\]'\n", done.stderr)


@pytest.mark.usefixtures("without_extras")
@pytest.mark.parametrize(
    ("command", "extras"), [("brew", "demo"), ("recovery", "demo"), ("refunds", "demo,spark-local")]
)
def test_a_demo_says_in_one_line_what_to_install(command: str, extras: str) -> None:
    done = run_fencepost("demo", command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: not installed: confluent-kafka\n\nhint: pip install 'fencepost[{extras}]'\n"


@pytest.mark.usefixtures("without_extras")
def test_the_sink_says_which_extra_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from fencepost.spark import ExactlyOnceSink"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=child_environment(),
    )
    assert done.returncode == 1
    *_, error, _, hint = done.stderr.splitlines()
    # Whichever of the two is imported first.
    lacks = [f"fencepost.spark.ExactlyOnceSink needs {name}, which is not installed" for name in ("numpy", "pyarrow")]
    assert error in [f"ModuleNotFoundError: {text}" for text in lacks]
    assert hint == (
        "hint: pip install 'fencepost[spark]' where there is a PySpark already, else 'fencepost[spark-local]'"
    )
