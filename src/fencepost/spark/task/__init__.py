"""The part of the sink that runs in a Spark task, in a Python worker of an executor."""

from __future__ import annotations
