"""The permissions that the sink needs from a cluster with ACLs, and the message about those that it lacks. Pure.

    transactional id of the sink       Write   every request of the transaction
    its group fencepost-marker-ID      Read    the commit note; Describe where no note is written
    output topics                      Write   the records
                                       Read    the commit note, which is the metadata of an offset on them
    group.id, and the source topics    Read    the source offsets
    group fencepost-token-ID:TOKEN     Read    the note about a token

Kafka: Read and Write on a resource include Describe.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fencepost.client.settings import ClientSettings
from fencepost.spark.driver.commit_note import note_group, token_group

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional-id"
READ, WRITE, DESCRIBE = "Read", "Write", "Describe"
# The bits of `authorized_operations`, by Kafka's numbers of the operations.
BITS = {READ: 1 << 3, WRITE: 1 << 4, DESCRIBE: 1 << 8}
NOT_SHOWN = -(1 << 31)
# The messages of a task whose topic was denied: when it looked for the leader, and when it wrote.
_DENIED_TOPIC = re.compile(r"topic (\S+): TOPIC_AUTHORIZATION_FAILED|(\S+)-\d+ refused .*?TOPIC_AUTHORIZATION_FAILED")


class Permission(NamedTuple):
    """One operation on one resource; `resource` is the option of `kafka-acls` without its dashes."""

    resource: str
    name: str
    operation: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"


def to_own(transactional_id: str) -> list[Permission]:
    """To take the transactional id over, and to read the commit notes."""
    return [
        Permission(TRANSACTIONAL_ID, transactional_id, WRITE),
        Permission(GROUP, note_group(transactional_id), DESCRIBE),
    ]


def to_commit(transactional_id: str) -> list[Permission]:
    """To leave a commit note, as every micro-batch of a query does."""
    return [Permission(GROUP, note_group(transactional_id), READ)]


def to_use_token(transactional_id: str, token: str) -> list[Permission]:
    return [Permission(GROUP, token_group(transactional_id, token), READ)]


def to_write(topics: Iterable[str], *, is_noted: bool) -> list[Permission]:
    """To write to these topics. is_noted: with a commit note, or the note about a token."""
    operations = (WRITE, READ) if is_noted else (WRITE,)
    return [Permission(TOPIC, topic, operation) for topic in sorted(topics) for operation in operations]


def to_move_group(group_id: str, source_topics: Iterable[str] = ()) -> list[Permission]:
    """To commit the source offsets to the user's group."""
    return [Permission(GROUP, group_id, READ), *(Permission(TOPIC, t, READ) for t in sorted(source_topics))]


def is_allowed(operation: str, authorized_operations: int) -> bool:
    """A broker that does not show the operations is believed to allow them: the request itself will tell."""
    return authorized_operations == NOT_SHOWN or bool(authorized_operations & BITS[operation])


def without_implied(permissions: Iterable[Permission]) -> list[Permission]:
    """The same without Describe where Read or Write on the resource is there, which includes it."""
    found = list(dict.fromkeys(permissions))
    more = {(resource, name) for resource, name, operation in found if operation != DESCRIBE}
    return [one for one in found if one.operation != DESCRIBE or (one.resource, one.name) not in more]


def denied_topics(reason: str) -> set[str]:
    """The topics that a broker denied to a task, by the task's message."""
    return {sought or written for sought, written in _DENIED_TOPIC.findall(reason)}


def principal_of(settings: ClientSettings) -> str | None:
    """The principal by Kafka's own rules; None if only brokers know how they make it: of a certificate or a token."""
    if settings.oauth is not None:
        return None
    if settings.sasl_mechanism is not None:
        return f"User:{settings.username}"
    return None if settings.tls.has_certificate else "User:ANONYMOUS"


def describe_missing(missing: Sequence[Permission], principal: str | None, bootstrap_servers: str) -> str:
    """One message that names every missing permission, with the commands that add them."""
    who = principal or "the principal of the client's certificate or token"
    named = ", ".join(str(permission) for permission in missing)
    lines = "\n".join(f"  {line}" for line in acl_commands(missing, principal, bootstrap_servers))
    return (
        f"{who} lacks {'a permission' if len(missing) == 1 else f'{len(missing)} permissions'} of the sink: {named}. "
        f"Nothing is committed\n\nhint: an administrator of the cluster adds {'it' if len(missing) == 1 else 'them'} "
        f"with\n{lines}"
    )


def acl_commands(missing: Iterable[Permission], principal: str | None, bootstrap_servers: str) -> list[str]:
    """The lines for a shell: one for each resource."""
    by_resource: dict[tuple[str, str], list[str]] = {}
    for resource, name, operation in missing:
        by_resource.setdefault((resource, name), []).append(operation)
    common = ["kafka-acls", "--bootstrap-server", bootstrap_servers, "--add", "--allow-principal"]
    return [
        shlex.join([*common, principal or "User:NAME", *_options(operations), f"--{resource}", name])
        for (resource, name), operations in by_resource.items()
    ]


def _options(operations: Iterable[str]) -> list[str]:
    return [word for operation in operations for word in ("--operation", operation)]


def by_kind(permissions: Iterable[Permission]) -> Mapping[str, dict[str, list[Permission]]]:
    """The permissions by kind of resource, then by its name."""
    found: dict[str, dict[str, list[Permission]]] = {TOPIC: {}, GROUP: {}, TRANSACTIONAL_ID: {}}
    for permission in permissions:
        found[permission.resource].setdefault(permission.name, []).append(permission)
    return found
