"""The driver's side of the sink: decides whether to run a micro-batch, and owns its transaction."""

from __future__ import annotations
