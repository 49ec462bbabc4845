"""`fencepost cluster`: the nodes of a Fencepost broker that has several, and orders to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from fencepost.cli.groups import HelpfulGroup
from fencepost.cli.options import ClusterOptions, Command, Unanswered, as_json_option, cluster_options, with_hint
from fencepost.cli.streams import Failure, WrongUse

if TYPE_CHECKING:
    from fencepost.cli.output import Block
    from fencepost.client.admin.orders import NodeList

NODES_HINT = "`fencepost cluster nodes` shows all nodes"
AWAY_HINT = "is this node paused or stopped? Name another one, or several separated by commas, with --bootstrap"


@click.group(cls=HelpfulGroup)
def cluster() -> None:
    """Stop, start, pause and resume nodes of `broker --brokers N`, and move leaders

    Every order returns when it is carried out, and prints all nodes.

    \b
    Example:
        fencepost cluster nodes --bootstrap localhost:9092
        fencepost cluster stop-node 2
    """


def _give(options: ClusterOptions, as_json: bool, order: str, node_id: int = -1, **given: str | int) -> None:
    from fencepost.cli.output import write
    from fencepost.client.admin.orders import OrderDeclined, order_nodes
    from fencepost.client.failures import DeadlinePassed, Unreachable
    from fencepost.client.session import Unsupported

    with options.connect() as client:
        try:
            nodes = order_nodes(client, order, node_id, **given)  # type: ignore[arg-type]
        except OrderDeclined as e:
            raise Failure(*with_hint(str(e), NODES_HINT)) from None
        except (DeadlinePassed, Unreachable) as e:
            problem, hint = with_hint(str(e), "")
            raise Unanswered(problem, f"{AWAY_HINT}; {hint}" if hint else AWAY_HINT) from None
        except Unsupported:
            raise Failure(
                "the brokers of this cluster take no orders about nodes",
                "only a Fencepost broker does: `fencepost broker --brokers 3`",
            ) from None
    write(nodes, _table, as_json)


def _table(document: NodeList) -> Iterator[Block]:
    from fencepost.cli.output import Table

    columns = ("node", "address", "state", "leaders", "coordinators")
    yield Table(columns, [(n.node_id, n.address, n.state, n.leaders, n.coordinators) for n in document.nodes])


@cluster.command()
@cluster_options
@as_json_option
def nodes(cluster: ClusterOptions, as_json: bool) -> None:
    """List the nodes: where they listen, whether they are up, what they lead

    \b
    Example:
        fencepost cluster nodes --bootstrap localhost:9092
    """
    _give(cluster, as_json, "describe")


def node_order(name: str) -> Callable[[Command], click.Command]:
    """A command with a node as its only argument."""
    node = click.argument("node_id", metavar="NODE", type=int)
    return lambda command: cluster.command(name)(node(cluster_options(as_json_option(command))))


@node_order("stop-node")
def stop_node(node_id: int, cluster: ClusterOptions, as_json: bool) -> None:
    """Stop a node: others lead its partitions, and its port is closed

    \b
    Example:
        fencepost cluster stop-node 2 --bootstrap localhost:9092
    """
    _give(cluster, as_json, "stop", node_id)


@node_order("start-node")
def start_node(node_id: int, cluster: ClusterOptions, as_json: bool) -> None:
    """Start a node that was stopped, on the same port

    It leads nothing until another node goes, a topic is created, or a leader is moved to it.

    \b
    Example:
        fencepost cluster start-node 2 --bootstrap localhost:9092
    """
    _give(cluster, as_json, "start", node_id)


@node_order("pause-node")
def pause_node(node_id: int, cluster: ClusterOptions, as_json: bool) -> None:
    """Let a node answer nothing, as a process that is suspended; others lead its partitions

    Its connections stay open, so clients wait for its answers as long as their request timeout says.

    \b
    Example:
        fencepost cluster pause-node 2 --bootstrap localhost:9092
    """
    _give(cluster, as_json, "pause", node_id)


@node_order("resume-node")
def resume_node(node_id: int, cluster: ClusterOptions, as_json: bool) -> None:
    """Let a paused node go on: it answers what clients have sent meanwhile

    \b
    Example:
        fencepost cluster resume-node 2 --bootstrap localhost:9092
    """
    _give(cluster, as_json, "resume", node_id)


@cluster.command("move-leader")
@click.argument("partition", metavar="TOPIC:PARTITION")
@click.argument("node_id", metavar="NODE", type=int)
@cluster_options
@as_json_option
def move_leader(partition: str, node_id: int, cluster: ClusterOptions, as_json: bool) -> None:
    """Have a node lead a partition

    \b
    Example:
        fencepost cluster move-leader orders:0 3 --bootstrap localhost:9092
    """
    topic, colon, index = partition.rpartition(":")
    if not colon or not topic or not (index.isascii() and index.isdigit()):
        raise WrongUse(f"{partition} is not a partition", "write TOPIC:PARTITION, for example orders:0")
    _give(cluster, as_json, "move-leader", node_id, topic=topic, partition=min(int(index), 2**31 - 1))


@cluster.command("move-coordinator")
@click.argument("transactional_id", metavar="ID")
@click.argument("node_id", metavar="NODE", type=int)
@cluster_options
@as_json_option
def move_coordinator(transactional_id: str, node_id: int, cluster: ClusterOptions, as_json: bool) -> None:
    """Have a node coordinate a transactional id, and the others of its partition of __transaction_state

    \b
    Example:
        fencepost cluster move-coordinator orders-sink-3 2 --bootstrap localhost:9092
    """
    if not transactional_id:
        raise WrongUse("the transactional id is empty", "`fencepost txn list` shows those of the cluster")
    _give(cluster, as_json, "move-coordinator", node_id, transactional_id=transactional_id)
