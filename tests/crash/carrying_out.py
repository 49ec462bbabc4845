"""A run of a script that looks for what a broker loses, from its start to its exit code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fencepost.cli.streams import say
from fencepost.testing import Broker


class LongRun(Protocol):
    @property
    def broker(self) -> Broker: ...

    def go(self) -> None: ...

    def close(self) -> None: ...


def carry_out(run: LongRun, folder: Path, seed: int, how_far: Callable[[], str]) -> int:
    """Returns the exit code. If something is wrong, the folder stays as evidence. `how_far`: such as `in round 3`."""
    try:
        run.go()
    except KeyboardInterrupt:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)
        say(f"\ninterrupted {how_far()}; nothing was found wrong until then")
        return 130
    except Exception as error:
        run.close()
        (folder / "broker.log").write_text(run.broker.log)
        print(f"FAIL {how_far()}, seed {seed}: {type(error).__name__}: {error}")
        names = ", ".join(sorted(path.name for path in folder.iterdir()))
        print(f"\nhint: the evidence is in {folder} ({names}); `fencepost verify check` judges a history")
        return 1
    run.close()
    shutil.rmtree(folder, ignore_errors=True)
    return 0
