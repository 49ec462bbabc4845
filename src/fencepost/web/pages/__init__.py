"""The pages of the workbench, one module for each."""

from __future__ import annotations

from fencepost.web.page import Page
from fencepost.web.pages import groups, overview, partition, topics, txns

# In the order of the navigation.
PAGES: tuple[Page, ...] = (overview.PAGE, txns.PAGE, topics.PAGE, partition.PAGE, groups.GROUPS, groups.GROUP)
