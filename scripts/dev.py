"""Starts a broker with sample transactions and runs it until Ctrl-C. Its data stays in `.dev-data`.

Usage: dev.py [HOST:PORT]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCEPOST = Path(sys.executable).with_name("fencepost")


def main() -> int:
    listen = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    command: list[str | Path] = [FENCEPOST, "broker", "--listen", listen, "--data", ROOT / ".dev-data"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        ready = broker.stdout.readline().strip()
        if not ready:
            return broker.wait()
        address = ready.removeprefix("ready ")
        try:
            subprocess.run([FENCEPOST, "demo", "brew", "--bootstrap", address], check=True, stderr=subprocess.DEVNULL)
            print(f"\nThe broker is at {address}, with the transactions above. Ctrl-C stops it.", flush=True)
            return broker.wait()
        except KeyboardInterrupt:
            return broker.wait()
        finally:
            broker.terminate()


if __name__ == "__main__":
    raise SystemExit(main())
