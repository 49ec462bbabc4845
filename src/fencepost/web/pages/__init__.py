"""The pages of the workbench, one module for each."""

from __future__ import annotations

from fencepost.web.page import Page
from fencepost.web.pages import errors, overview, topics, txn, txns

# In the order of the navigation.
PAGES: tuple[Page, ...] = (
    overview.PAGE,
    txns.PAGE,
    txn.PAGE,
    topics.PAGE,
    errors.TABLE_PAGE,
    errors.PAGE,
)
