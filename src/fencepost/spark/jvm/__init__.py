"""The jar whose tasks write from Spark's own JVM. Its sources are in `java/`; `scripts/build_jar.py` builds it."""

from __future__ import annotations
