"""A client of `load.py` in its own process, which a test may kill, with its ledger in a file.

client = ClientProcess("writer-0", "TxnWriter", broker.bootstrap_servers, seed, journal, topics={"orders": 2})
client.start()
client.stop()          # After the end of its current transaction.
"""

from __future__ import annotations

import faulthandler
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.crash import load
from tests.crash.journal import Journal

STOP_TIMEOUT_S = 60.0
ROOT = Path(__file__).parents[2]
HANGS_IN = re.compile(r'load\.py", line \d+ in (\w+)')


class ClientFailed(Exception):
    """A client ended unexpectedly, or did not stop cleanly."""


class ClientProcess:
    def __init__(self, name: str, kind: str, servers: str, seed: int, journal: Path, **options: Any) -> None:
        self.name = name
        self.journal = journal
        self._given = {
            "name": name,
            "kind": kind,
            "servers": servers,
            "seed": seed,
            "journal": str(journal),
            "options": options,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes]

    def start(self) -> None:
        self._stderr = tempfile.TemporaryFile(prefix="fencepost-client-")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.client_process", json.dumps(self._given)],
            stdin=subprocess.PIPE,
            stderr=self._stderr,
            cwd=ROOT,
            # Ctrl-C is for the parent process.
            process_group=0,
        )

    def check(self) -> None:
        """Raises ClientFailed if it has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise ClientFailed(f"{self.name} ended with exit code {self._process.returncode}\n{self._said()}")

    def kill(self) -> None:
        """SIGKILL. `start` then starts the next one, with the same transactional id."""
        if self._process is not None:
            self._process.kill()
            self._let_go()

    def ends_within(self, seconds: float) -> bool:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill_hanging(self) -> str:
        """Kill a client that hangs; return its name, and the function of `load.py` that it hangs in."""
        assert self._process is not None
        self._process.send_signal(signal.SIGABRT)  # It prints the stacks of its threads.
        self._process.wait()
        found = HANGS_IN.search(self._said())
        self._let_go()
        return f"{self.name} in {found[1]}" if found else self.name

    def ask_to_stop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def stop(self) -> None:
        assert self._process is not None
        self.ask_to_stop()
        try:
            exit_code = self._process.wait(STOP_TIMEOUT_S)
            if exit_code != 0:
                raise ClientFailed(f"{self.name} ended with exit code {exit_code}\n{self._said()}")
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # It prints the stacks of its threads.
            self._process.wait()
            raise ClientFailed(f"{self.name} does not end\n{self._said()}") from None
        finally:
            self.kill()

    def _said(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def _let_go(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._stderr.close()
        self._process = None


def main() -> int:
    faulthandler.enable()
    given = json.loads(sys.argv[1])
    journal = Journal(Path(given["journal"]), given["name"])
    stop = threading.Event()
    kind: type[load.Client] = getattr(load, given["kind"])
    client = kind(given["name"], given["servers"], journal, stop, given["seed"], **given["options"])
    if journal.left_behind is not None:
        client.left_behind = load.GaveUp(*journal.left_behind)

    def await_the_end_of_input() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=await_the_end_of_input, daemon=True).start()
    client.start()
    client.join()
    if client.failure is not None:
        print(client.failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
