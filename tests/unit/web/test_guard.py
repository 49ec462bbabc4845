"""Which requests the workbench takes."""

from __future__ import annotations

import pytest

from fencepost.web.guard import is_token, refused_change, refused_host, refused_site, token_of
from fencepost.web.serving import host_names, is_loopback

NAMES = host_names("127.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "127.0.0.1"])
def test_the_names_of_this_machine_are_taken(host: str) -> None:
    assert refused_host(host, NAMES) is None


@pytest.mark.parametrize("host", ["evil.example:8080", "127.0.0.1.evil.example", "", "localhost.evil.example:80"])
def test_a_foreign_name_that_resolves_to_this_machine_gets_nothing(host: str) -> None:
    refusal = refused_host(host, NAMES)
    assert refusal is not None
    assert refusal.status == 421
    assert refused_host(host, None) is None, "a token protects it"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_can_link_here_and_nothing_else(site: str) -> None:
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert refused_site("GET", link) is None
    assert refused_site("POST", link) is not None
    assert refused_site("GET", link | {"sec-fetch-dest": "iframe"}) is not None
    for mode in ("cors", "no-cors"):
        assert refused_site("GET", {"sec-fetch-site": site, "sec-fetch-mode": mode}) is not None


def test_the_own_page_and_programs_are_taken() -> None:
    assert refused_site("GET", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}) is None
    assert refused_site("GET", {}) is None


def test_a_change_needs_the_own_origin_the_own_header_and_json() -> None:
    right = {
        "host": "127.0.0.1:8080",
        "origin": "http://127.0.0.1:8080",
        "x-fencepost": "1",
        "content-type": "application/json; charset=utf-8",
    }
    assert refused_change(right, "http") is None
    assert refused_change({k: v for k, v in right.items() if k != "origin"}, "http") is None, "a program sends none"
    assert refused_change(right | {"origin": "https://127.0.0.1:8080"}, "http") is None, "a proxy with TLS is in front"
    assert refused_change(right, "https") is not None
    for wrong in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8081"},
        {"x-fencepost": ""},
        {"content-type": "text/plain"},
    ):
        assert refused_change(right | wrong, "http") is not None, wrong


def test_a_token_comes_as_a_header_or_as_a_cookie() -> None:
    assert token_of({"authorization": "Bearer abc"}, "fencepost-1") == "abc"
    assert token_of({"cookie": "other=1; fencepost-1=abc"}, "fencepost-1") == "abc"
    assert token_of({"cookie": "fencepost-2=abc"}, "fencepost-1") is None
    assert token_of({"cookie": 'fencepost-1="'}, "fencepost-1") != "abc"
    assert token_of({}, "fencepost-1") is None
    assert is_token("abc", "abc")
    assert not is_token("ab\ud800c", "abc")
    assert not is_token(None, "abc")


@pytest.mark.parametrize("other", ['prefs={"dark":true}', "name=Jane Doe", "x[y]=1", "ä=1", "a b=1", 'open="', "alone"])
def test_a_cookie_of_another_program_does_not_hide_the_token(other: str) -> None:
    assert token_of({"cookie": f"{other}; fencepost-1=abc"}, "fencepost-1") == "abc"
    assert token_of({"cookie": f"fencepost-1=abc; {other}"}, "fencepost-1") == "abc"


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("box", False),
    ],
)
def test_only_loopback_needs_no_token(host: str, is_own: bool) -> None:
    assert is_loopback(host) is is_own
