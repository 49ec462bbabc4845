"""The settings of topics and brokers, as the cluster shows them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fencepost.client.admin.asking import DEADLINE_S
from fencepost.client.client import BROKER_RESOURCE, KafkaClient, retry
from fencepost.client.failures import BrokerError
from fencepost.protocol.messages import DescribeConfigsRequest

TOPIC_RESOURCE = 2
DYNAMIC_TOPIC = 1  # The source of a setting that was made for the topic itself.


class ShownConfig(NamedTuple):
    name: str
    value: str | None  # None: it is secret.
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
    """Some settings of one broker. Settings that it does not have or does not show are left out."""

    def attempt() -> dict[str, str]:
        wanted = DescribeConfigsRequest.DescribeConfigsResource(BROKER_RESOURCE, str(node_id), list(names))
        response = client.send(client.broker(node_id), DescribeConfigsRequest([wanted]))
        [result] = response.results
        if result.error_code:
            raise BrokerError(result.error_code, f"the settings of broker {node_id}", result.error_message)
        return {c.name: c.value for c in result.configs if c.value is not None}

    return retry(attempt, DEADLINE_S)
