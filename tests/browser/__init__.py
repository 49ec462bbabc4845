"""A package, so that Chromium can be a fixture of all its tests and ends with the last of them.

While Playwright's blocking interface is open, its thread has a running event loop, and other tests cannot have one.
"""

from __future__ import annotations
