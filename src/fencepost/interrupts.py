"""Ctrl-C while a command starts.

Most of a start is the import of modules. A KeyboardInterrupt in the middle of an import ends with a traceback through
modules of others, so Ctrl-C ends the process directly as long as there is nothing to clean up. This module imports
almost nothing, so that it is in force soon.
"""

from __future__ import annotations

import os
import signal
from contextlib import ContextDecorator, suppress

INTERRUPTED = 130


class EndsAtOnce(ContextDecorator):
    """A block, or a function, in which Ctrl-C ends the process with the line and the exit code of other commands.

    It does nothing in other threads than the first, and where Ctrl-C is ignored or has another handler. A handler that
    is set in the block stays.
    """

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            _handle_ctrl_c(_end)

    def __exit__(self, *_: object) -> None:
        if signal.getsignal(signal.SIGINT) is _end:
            _handle_ctrl_c(signal.default_int_handler)


def _handle_ctrl_c(handler: signal._HANDLER) -> None:
    with suppress(ValueError):  # Only the main thread sets handlers.
        signal.signal(signal.SIGINT, handler)


def _end(*_: object) -> None:
    with suppress(OSError):  # Without a stderr.
        os.write(2, b"\ninterrupted\n")
    os._exit(INTERRUPTED)
