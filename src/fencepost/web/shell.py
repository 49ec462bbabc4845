"""The HTML of every page: it names the script that draws the page, and has nothing from a cluster but escaped text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

STATIC = Path(__file__).parent / "static"

_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="fencepost-script" content="{script}">
<meta name="fencepost-frame" content="{frame}">
<title>{title} · Fencepost</title>
<link rel="icon" type="image/svg+xml" href="/static/icon.svg">
<link rel="stylesheet" href="/static/vendor/uplot/uPlot.min.css">
<link rel="stylesheet" href="/static/style.css">
<script src="/static/theme.js"></script>
<script type="module" src="/static/app.js"></script>
</head>
<body>
<noscript>The workbench needs JavaScript. Every page also answers with JSON: add ?format=json to its address.</noscript>
</body>
</html>
"""


def shell(script: str, title: str, frame: Mapping[str, object]) -> str:
    """`frame`: what the script of the frame needs to know before it asks for the document."""
    return _HTML.format(script=escape(script), title=escape(title), frame=escape(json.dumps(frame)))


def frame(
    *,
    params: Mapping[str, str] | None = None,
    navigation: Sequence[tuple[str, str]] = (),
    can_act: bool = False,
    cluster: str | None = None,
    problem: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """`problem`: why there is no page, or what was wrong with the token."""
    return {
        "params": dict(params or {}),
        "navigation": [{"label": label, "href": href} for label, href in navigation],
        "can_act": can_act,
        "cluster": cluster,
        "problem": problem,
    }
