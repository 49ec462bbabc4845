"""The pages of the workbench, one module for each."""

from __future__ import annotations

from fencepost.web.page import Page
from fencepost.web.pages import groups, overview, partition

# In the order of the navigation.
PAGES: tuple[Page, ...] = (overview.PAGE, groups.GROUPS, groups.GROUP, partition.PAGE)
