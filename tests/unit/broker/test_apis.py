"""The table of APIs and the files of the handlers agree."""

from __future__ import annotations

from importlib import import_module

import pytest

from fencepost.broker.api import APIS, Api


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_docstring_of_a_handler_begins_with_its_name_key_and_versions(api: Api) -> None:
    versions = f"v{api.first}" if api.first == api.last else f"v{api.first}-{api.last}"
    assert (import_module(api.module).__doc__ or "").startswith(f"{api.name} (key {api.key}), {versions}: ")
