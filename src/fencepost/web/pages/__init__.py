"""The pages of the workbench, one module for each."""

from __future__ import annotations

from fencepost.web.learn.pages import PAGES as LEARN
from fencepost.web.page import Page
from fencepost.web.pages import errors, overview, txn

# In the order of the navigation.
PAGES: tuple[Page, ...] = (overview.PAGE, txn.PAGE, *LEARN, errors.TABLE_PAGE, errors.PAGE)
