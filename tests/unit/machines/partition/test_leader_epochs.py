"""Leader epochs, and the answers to clients that know older ones."""

from __future__ import annotations

from fencepost.machines.partition.leader_epochs import LeaderEpochs
from fencepost.protocol import errors


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    epochs = LeaderEpochs([(2, 0), (5, 2)])
    assert epochs.end_of(5, 3) == (5, 3)
    assert epochs.end_of(4, 3) == epochs.end_of(2, 3) == (2, 2)
    assert epochs.end_of(6, 3) == (-1, -1)
    assert epochs.end_of(1, 3) == (1, 0)
    assert (epochs.at(1), epochs.at(2)) == (2, 5)


def test_only_a_newer_epoch_begins() -> None:
    epochs = LeaderEpochs([(2, 0)])
    epochs.begin(2, 7)
    epochs.begin(1, 8)
    assert (epochs.current, epochs.at(9)) == (2, 2)
    epochs.begin(3, 9)
    assert (epochs.current, epochs.at(9)) == (3, 3)


def test_an_error_says_whether_the_client_or_the_broker_is_behind() -> None:
    epochs = LeaderEpochs([(2, 0)])
    assert [epochs.check(known) for known in (-1, 1, 2, 3)] == [
        errors.NONE,
        errors.FENCED_LEADER_EPOCH,
        errors.NONE,
        errors.UNKNOWN_LEADER_EPOCH,
    ]
