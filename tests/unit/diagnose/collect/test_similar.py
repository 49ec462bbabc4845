"""Which ids are offered for one that does not exist."""

from __future__ import annotations

from fencepost.diagnose.collect.transactions import similar_ids


def test_ids_that_begin_with_the_given_text_are_offered_first() -> None:
    known = ["audio", "audits", "audit-of-the-whole-shop-2", "orders"]
    assert similar_ids("audit", known) == ("audit-of-the-whole-shop-2", "audits", "audio")
    assert similar_ids("nothing", known) == ()
