"""The users of a broker that does not run: the first one has to be there before a client can log in.

Kafka's `kafka-storage format --add-scram` does the same. Only the metadata document changes; logs are not opened.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fencepost.broker.metadata import Metadata, decode_metadata, encode_metadata
from fencepost.broker.users import Users
from fencepost.machines.auth.scram import credential_of
from fencepost.protocol.scram import SALT_BYTES, SCRAM_MECHANISMS, salted_password
from fencepost.protocol.transaction_version import TransactionVersion
from fencepost.server.storage.document import METADATA_NAME, Document
from fencepost.server.storage.identity import DataFolderUnusable, drop_lock, make_folder, take_lock


def users_in(data: str) -> dict[str, dict[str, int]]:
    """The iterations of each user's credentials, by mechanism. The broker may run. Raises DataFolderUnusable."""
    found = Document(data).load()
    if found is None:
        raise DataFolderUnusable(
            f"{data} is not the data folder of a broker: it has no file {METADATA_NAME}", "is --data the right folder?"
        )
    users = decode_metadata(found).users
    return {name: {kind: kept.iterations for kind, kept in credentials.items()} for name, credentials in users.items()}


def add_user(data: str, user: str, mechanisms: tuple[str, ...], password: str, iterations: int) -> None:
    """Add the credentials, or replace them. A folder that does not exist is made. Raises DataFolderUnusable."""
    added = {}
    for name in mechanisms:
        mechanism, salt = SCRAM_MECHANISMS[name], os.urandom(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, iterations)
        added[name] = credential_of(mechanism, salted, salt, iterations)
    _change(data, lambda users: {**users, user: {**users.get(user, {}), **added}})


def delete_user(data: str, user: str, mechanisms: tuple[str, ...]) -> None:
    """Raises DataFolderUnusable."""

    def without(users: Users) -> Users:
        left = {name: kept for name, kept in users.get(user, {}).items() if name not in mechanisms}
        return {name: credentials for name, credentials in {**users, user: left}.items() if credentials}

    _change(data, without)


def _change(data: str, change: Callable[[Users], Users]) -> None:
    with _locked(data):
        document = Document(data)
        found = document.load()
        before = _first_document(data) if found is None else decode_metadata(found)
        after = before._replace(users=change(before.users))
        document.save(encode_metadata(after))


@contextmanager
def _locked(data: str) -> Iterator[None]:
    """Hold the lock of the folder, so that no broker runs on it meanwhile."""
    make_folder(data)
    lock = take_lock(data)
    try:
        yield
    finally:
        drop_lock(lock)


def _first_document(data: str) -> Metadata:
    """The document of a new cluster, as a broker would make it at its first start."""
    others = sorted(set(os.listdir(data)) - {".lock"})
    if others:
        raise DataFolderUnusable(
            f"{data} has files ({others[0]} ...), but not the document of a cluster",
            "choose a new folder, or restore the file fencepost.metadata",
        )
    cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    return Metadata(cluster_id, TransactionVersion.TV2)
