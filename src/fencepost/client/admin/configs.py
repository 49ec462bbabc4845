"""The settings of topics and brokers, as the cluster shows them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fencepost.client.admin.answers import DEADLINE_S
from fencepost.client.client import KafkaClient, retry
from fencepost.client.failures import BrokerError
from fencepost.protocol.messages import DescribeConfigsRequest

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
DYNAMIC_TOPIC = 1  # The source of a setting that was made for the topic itself.


class ShownConfig(NamedTuple):
    name: str
    value: str | None  # None: the value is secret.
    source: int


def describe_topic_configs(
    client: KafkaClient, topic: str, names: Collection[str] | None = None
) -> tuple[ShownConfig, ...]:
    """The settings of a topic, or those of them that are named. Raises BrokerError if they are not shown."""

    def attempt() -> tuple[ShownConfig, ...]:
        wanted = DescribeConfigsRequest.DescribeConfigsResource(
            TOPIC_RESOURCE, topic, None if names is None else list(names)
        )
        response = client.send(client.any_broker(), DescribeConfigsRequest([wanted]))
        [result] = response.results
        if result.error_code:
            raise BrokerError(result.error_code, f"the settings of topic {topic}", result.error_message)
        return tuple(sorted(ShownConfig(c.name, c.value, c.config_source) for c in result.configs))

    return retry(attempt, DEADLINE_S)


def describe_broker_configs(client: KafkaClient, node_id: int, names: Collection[str]) -> dict[str, str]:
    """Some settings of one broker, asked for once. Settings that it does not have or does not show are left out.

    Raises BrokerError if it shows none at all, because a permission is missing.
    """
    wanted = DescribeConfigsRequest.DescribeConfigsResource(BROKER_RESOURCE, str(node_id), list(names))
    response = client.send(client.broker(node_id), DescribeConfigsRequest([wanted]))
    [result] = response.results
    if result.error_code:
        raise BrokerError(result.error_code, f"the settings of broker {node_id}", result.error_message)
    return {c.name: c.value for c in result.configs if c.value is not None}


def broker_setting(client: KafkaClient, node_id: int, name: str) -> str | None:
    """The value of a setting on one broker; None if the broker does not have it, or does not show it to us."""
    try:
        return describe_broker_configs(client, node_id, [name]).get(name)
    except BrokerError:
        return None


def setting_of_every_broker(client: KafkaClient, name: str) -> dict[int, str | None]:
    """The value of a setting on each broker by its id; None if that broker does not show it."""
    return {node_id: broker_setting(client, node_id, name) for node_id in sorted(client.brokers())}
