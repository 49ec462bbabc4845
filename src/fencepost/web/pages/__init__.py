"""The pages of the workbench, one module for each."""

from __future__ import annotations

from fencepost.web.learn.pages import PAGES as LEARN
from fencepost.web.page import Page
from fencepost.web.pages import errors, groups, overview, partition, tap, topics, txn, txns

# In the order of the navigation. Learn comes first of those that need no cluster.
PAGES: tuple[Page, ...] = (
    overview.PAGE,
    txns.PAGE,
    txn.PAGE,
    topics.PAGE,
    partition.PAGE,
    groups.GROUPS,
    groups.GROUP,
    *LEARN,
    errors.TABLE_PAGE,
    errors.PAGE,
)
# Those that an option adds.
OPTIONAL_PAGES: tuple[Page, ...] = (tap.PAGE,)
