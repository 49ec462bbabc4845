"""Leases: which task may write to which partition next. The driver serves them, tasks ask for them."""

from __future__ import annotations
