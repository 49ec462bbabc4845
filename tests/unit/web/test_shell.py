"""The HTML of a page: text from a cluster stays text."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from fencepost.web.shell import frame, shell

HOSTILE = "</title><script>alert(1)</script>\"'<img src=x onerror=alert(1)>&amp;{script}"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.title = ""
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_title = tag == "title"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False


def test_a_hostile_name_stays_text() -> None:
    of_page = frame(
        params={"transactional_id": HOSTILE}, navigation=[("Overview", "/")], can_act=False, cluster=HOSTILE
    )
    tags = Tags(shell("txn.js", HOSTILE, of_page))
    assert tags.title == f"{HOSTILE} · Fencepost"
    assert [attrs["src"] for tag, attrs in tags.found if tag == "script"] == ["/static/theme.js", "/static/app.js"]
    assert not [tag for tag, _ in tags.found if tag == "img"]
    [content] = [attrs["content"] for _, attrs in tags.found if attrs.get("name") == "fencepost-frame"]
    assert json.loads(content or "")["params"] == {"transactional_id": HOSTILE}


def test_no_script_or_style_is_inline_and_nothing_comes_from_elsewhere() -> None:
    tags = Tags(shell("txn.js", "A page", {}))
    for tag, attrs in tags.found:
        assert not [name for name in attrs if name.startswith("on") or name == "style"], (tag, attrs)
        assert tag != "style"
        for name in ("src", "href"):
            assert attrs.get(name, "/static/").startswith("/static/"), (tag, attrs)  # type: ignore[union-attr]
