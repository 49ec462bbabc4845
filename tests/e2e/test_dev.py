"""`make dev`: a broker that has something to explain."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

from scripts.dev import port_problem
from tests.command_line import run_fencepost

ROOT = Path(__file__).resolve().parents[2]


def test_a_busy_port_says_what_make_takes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        problem = port_problem(f"127.0.0.1:{port}")
        done = subprocess.run(
            [sys.executable, "-m", "scripts.dev", f"127.0.0.1:{port}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert problem is not None
    assert re.match(rf"cannot listen on 127\.0\.0\.1:{port}: .+\n\nhint: make dev LISTEN=127\.0\.0\.1:\d+$", problem)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {problem}\n"
    makefile = (ROOT / "Makefile").read_text()
    assert "-m scripts.dev $(LISTEN)" in makefile, "make hands it on"


def test_one_transaction_is_open_and_one_hangs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scripts.dev", "127.0.0.1:0", str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as dev:
        try:
            assert dev.stdout is not None
            said = ""
            while "Ctrl-C stops" not in said:
                line = dev.stdout.readline()
                assert line, said
                said += line
            address = re.findall(r"The broker is at (\S+),", said)[0]
            assert f"fencepost doctor --bootstrap {address}" in said
            workbench = re.findall(r"The workbench is at (\S+)", said)[0]
            with urllib.request.urlopen(f"{workbench}?format=json", timeout=60) as answer:
                overview = json.load(answer)
            assert [row["transactional_id"] for row in overview["oldest"]] == ["audit-open"]
            assert {pin["is_orphan"] for pin in overview["pins"]} == {True, False}
            assert f"fencepost tail audit --bootstrap {address}" in said
            listed = run_fencepost("txn", "list", "--bootstrap", address, "--state", "Ongoing", "--json")
            assert "audit-open" in json.dumps(json.loads(listed.stdout))
            hanging = run_fencepost("txn", "hanging", "--bootstrap", address, "--json")
            assert "audit" in json.dumps(json.loads(hanging.stdout))
            waiting = run_fencepost("txn", "lso", "--bootstrap", address, "--json")
            assert {"audit-open", "audit-hanging"} <= set(re.findall(r"audit-\w+", waiting.stdout))
            explained = run_fencepost("txn", "explain", "audit-open", "--bootstrap", address)
            assert "audit-0" in explained.stdout
        finally:
            dev.send_signal(signal.SIGTERM)
            assert dev.wait(60) == 0
