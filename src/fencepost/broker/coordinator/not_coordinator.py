"""What a coordinator raises for a group or a transactional id that another node coordinates."""

from __future__ import annotations


class NotCoordinator(Exception):
    """The client must ask for the coordinator again (NOT_COORDINATOR)."""
