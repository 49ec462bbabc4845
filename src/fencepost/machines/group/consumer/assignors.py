"""The assignors of the consumer protocol, `range` and `uniform`: which member reads which partitions.

An assignor is a function of the members (`Wanting`) and the number of partitions of each topic. Every partition of a
topic that has subscribers gets exactly one member. Kafka's assignors of these names have the same goals.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from fencepost.machines.group.consumer.group import Assignor, Place, Places, Wanting

MAX_ROUNDS = 16


def assign_range(members: Mapping[str, Wanting], partition_counts: Mapping[bytes, int]) -> dict[str, Places]:
    """Each subscriber of a topic gets consecutive partitions, and the same ones of topics of the same size."""
    assigned: dict[str, set[Place]] = {member_id: set() for member_id in members}
    # Static members first: their order, and so their assignment, survives a restart.
    order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or m))
    for topic_id, count in partition_counts.items():
        subscribers = [member_id for member_id in order if topic_id in members[member_id].topic_ids]
        if not subscribers:
            continue
        share, extra = divmod(count, len(subscribers))
        begin = 0
        for i, member_id in enumerate(subscribers):
            end = begin + share + (i < extra)
            assigned[member_id].update((topic_id, index) for index in range(begin, end))
            begin = end
    return {member_id: frozenset(places) for member_id, places in assigned.items()}


def assign_uniform(members: Mapping[str, Wanting], partition_counts: Mapping[bytes, int]) -> dict[str, Places]:
    """As balanced as possible, and then as close to the previous assignment as possible."""
    subscribers = {
        topic_id: sorted(member_id for member_id, wanting in members.items() if topic_id in wanting.topic_ids)
        for topic_id in partition_counts
    }
    assigned: dict[str, set[Place]] = {member_id: set() for member_id in members}
    taken: set[Place] = set()
    for member_id in sorted(members):
        for place in sorted(members[member_id].had):
            topic_id, index = place
            is_there = index < partition_counts.get(topic_id, 0) and topic_id in members[member_id].topic_ids
            if is_there and place not in taken:
                assigned[member_id].add(place)
                taken.add(place)
    # Topics with few subscribers for their partitions go first, as the others can still balance the load.
    order = sorted(
        (topic_id for topic_id in partition_counts if subscribers[topic_id]),
        key=lambda topic_id: (-partition_counts[topic_id] / len(subscribers[topic_id]), topic_id),
    )
    for topic_id in order:
        _hand_out(topic_id, partition_counts[topic_id], subscribers[topic_id], assigned, taken)
    for _ in range(MAX_ROUNDS):
        moved = (_even_out(topic_id, partition_counts[topic_id], subscribers[topic_id], assigned) for topic_id in order)
        if not sum(moved):
            break
    return {member_id: frozenset(places) for member_id, places in assigned.items()}


def _hand_out(
    topic_id: bytes, count: int, subscribers: list[str], assigned: dict[str, set[Place]], taken: set[Place]
) -> None:
    """Partitions without an owner go to the subscriber with the fewest partitions."""
    loads = [(len(assigned[member_id]), member_id) for member_id in subscribers]
    heapq.heapify(loads)
    for index in range(count):
        if (topic_id, index) not in taken:
            load, member_id = loads[0]
            assigned[member_id].add((topic_id, index))
            heapq.heapreplace(loads, (load + 1, member_id))


def _even_out(topic_id: bytes, count: int, subscribers: list[str], assigned: dict[str, set[Place]]) -> int:
    """Move partitions of a topic from the busiest to the idlest subscriber while that balances the load."""
    loads = [len(assigned[member_id]) for member_id in subscribers]
    if max(loads) - min(loads) <= 1:
        return 0
    places = [(topic_id, index) for index in reversed(range(count))]
    own = {member_id: [place for place in places if place in assigned[member_id]] for member_id in subscribers}
    moved = 0
    while True:
        givers = [member_id for member_id in subscribers if own[member_id]]
        if not givers:
            return moved
        giver = max(givers, key=lambda m: len(assigned[m]))
        taker = min(subscribers, key=lambda m: len(assigned[m]))
        if len(assigned[giver]) - len(assigned[taker]) <= 1:
            return moved
        place = own[giver].pop(0)
        assigned[giver].remove(place)
        assigned[taker].add(place)
        own[taker].append(place)
        moved += 1


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
