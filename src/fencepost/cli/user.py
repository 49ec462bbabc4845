"""`fencepost user`: the users that log in by SCRAM, of any Kafka cluster or of a broker that does not run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import ClusterOptions, as_json_option, cluster_options
from fencepost.cli.streams import Failure, WrongUse, confirm, say
from fencepost.protocol.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_MECHANISMS

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.client.admin.users import UserList

MECHANISMS = tuple(SCRAM_MECHANISMS)

data_option = click.option(
    "--data", metavar="DIR", help="The data folder of a Fencepost broker that does not run, instead of a cluster."
)
mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(MECHANISMS),
    multiple=True,
    help="One mechanism; repeatable. Default: both.",
)


@click.group(cls=HelpfulGroup)
def user() -> None:
    """Add, list and delete users that log in by SCRAM

    \b
    Example:
        fencepost user add alice --data ./brew-data
        fencepost user list --bootstrap localhost:9092
    """


@user.command()
@click.argument("name", metavar="NAME")
@mechanism_option
@click.option(
    "--password-file", metavar="FILE", help="The first line is the password; - reads stdin. Default: ask for it."
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    metavar="N",
    help="The rounds of the hash that protects the password.",
)
@data_option
@cluster_options
def add(
    name: str,
    mechanisms: tuple[str, ...],
    password_file: str | None,
    iterations: int,
    data: str | None,
    cluster: ClusterOptions,
) -> None:
    """Add a user, or give it a new password

    The first user of a broker has to be there before a client can log in: stop the broker and use --data. The cluster
    keeps salted keys, from which the password cannot be computed.

    \b
    Example:
        fencepost user add alice --data ./brew-data
        fencepost user add alice --password-file secret.txt --bootstrap localhost:9092
    """
    _refuse_both(data, cluster)
    password = _password(password_file)
    chosen = mechanisms or MECHANISMS
    if data is not None:
        from fencepost.server.stopped_users import add_user as add_to_folder

        with _folder(data):
            add_to_folder(data, name, chosen, password, iterations)
    else:
        from fencepost.client.admin.users import add_user

        with cluster.connect() as client, _refusals():
            for mechanism in chosen:
                add_user(client, name, mechanism, password, iterations)
    say(f"user {name} can log in by {' and '.join(chosen)}")


@user.command("list")
@data_option
@cluster_options
@as_json_option
def list_(data: str | None, cluster: ClusterOptions, as_json: bool) -> None:
    """List the users that log in by SCRAM

    \b
    Example:
        fencepost user list --bootstrap localhost:9092
        fencepost user list --data ./brew-data --json
    """
    from fencepost.cli.output import write
    from fencepost.client.admin.users import user_list

    _refuse_both(data, cluster)
    document = user_list(_users(data, cluster))
    write(document, _list, as_json)
    if not document.users:
        say("no users")


@user.command()
@click.argument("name", metavar="NAME")
@mechanism_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@data_option
@cluster_options
def delete(name: str, mechanisms: tuple[str, ...], yes: bool, data: str | None, cluster: ClusterOptions) -> None:
    """Delete a user

    Connections that are logged in stay open until they end, or until their session ends (connections.max.reauth.ms).

    \b
    Example:
        fencepost user delete alice --bootstrap localhost:9092
        fencepost user delete alice --mechanism SCRAM-SHA-256 --yes
    """
    _refuse_both(data, cluster)
    known = _users(data, cluster).get(name, {})
    chosen = tuple(mechanism for mechanism in mechanisms or MECHANISMS if mechanism in known)
    if not chosen:
        wanted = f" for {' and '.join(mechanisms)}" if mechanisms and known else ""
        raise Failure(f"there is no user {name}{wanted}", "`fencepost user list` shows all users")
    confirm(f"user {name} will no longer be able to log in by {' and '.join(chosen)}", yes)
    if data is not None:
        from fencepost.server.stopped_users import delete_user as delete_from_folder

        with _folder(data):
            delete_from_folder(data, name, chosen)
    else:
        from fencepost.client.admin.users import delete_user

        with cluster.connect() as client, _refusals():
            for mechanism in chosen:
                delete_user(client, name, mechanism)
    say(f"user {name} can no longer log in by {' and '.join(chosen)}")


def _refuse_both(data: str | None, cluster: ClusterOptions) -> None:
    """A cluster that is exported for all commands is no choice: then the folder counts."""
    if data is not None and cluster.bootstrap is not None and not cluster.is_exported:
        raise WrongUse(
            f"both --data {data} and --bootstrap {cluster.bootstrap}",
            "choose one of them: --data for a broker that does not run, --bootstrap for one that does",
        )


def _users(data: str | None, cluster: ClusterOptions) -> dict[str, dict[str, int]]:
    if data is not None:
        from fencepost.server.stopped_users import users_in

        with _folder(data):
            return users_in(data)
    from fencepost.client.admin.users import describe_users

    with cluster.connect() as client:
        return describe_users(client)


@contextmanager
def _folder(data: str) -> Iterator[None]:
    """Errors of a data folder become failures of the command."""
    from fencepost.server.startup import explain
    from fencepost.server.storage.identity import DataFolderInUse

    if not data.strip():
        raise WrongUse("--data is empty", "name the data folder of the broker, for example --data ./brew-data")
    try:
        yield
    except DataFolderInUse as error:
        raise Failure(error.problem, "stop that broker, or name it with --bootstrap instead of --data") from None
    except Exception as error:
        reason = explain(error, data)
        if reason is None:
            raise
        raise Failure(reason) from None


@contextmanager
def _refusals() -> Iterator[None]:
    """The cluster has answered, with a refusal: there is nothing to try again."""
    from fencepost.client.failures import BrokerError

    try:
        yield
    except BrokerError as e:
        raise Failure(str(e), f"`fencepost error {e.code}` explains this error") from None


def _password(file: str | None) -> str:
    if file is None:
        if not sys.stdin.isatty():
            raise WrongUse(
                "no password", "there is no terminal to ask for it: give --password-file FILE, or - for stdin"
            )
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    try:
        if file == "-":
            text = sys.stdin.readline()
        else:
            with open(file, encoding="utf-8") as opened:
                text = opened.readline()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise WrongUse(f"cannot read the password in {file}: {reason}", "--password-file names a file") from None
    password = text.rstrip("\r\n")
    if not password:
        raise WrongUse(f"the first line of {file} is empty", "it has to be the password")
    return password


def _list(document: UserList) -> Iterator[Block]:
    from fencepost.cli.output import Table

    yield Table(
        ("USER", "MECHANISM", "ITERATIONS"),
        [(row.user, kept.mechanism, kept.iterations) for row in document.users for kept in row.credentials],
    )
