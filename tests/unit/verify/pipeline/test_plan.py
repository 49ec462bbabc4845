"""What a run feeds and disturbs follows from its seed."""

from __future__ import annotations

from itertools import islice

from fencepost.faults.fault import parse_line
from fencepost.verify.pipeline.plan import ALL_KINDS, Kind, Writing, disturbances, input_groups


def test_the_same_seed_plans_the_same_run_and_another_seed_another() -> None:
    def plan(seed: int) -> tuple[object, object]:
        return list(islice(input_groups(seed, "mixed"), 50)), list(islice(disturbances(seed, 5, ALL_KINDS), 50))

    assert plan(1) == plan(1)
    assert plan(1) != plan(2)


def test_every_number_is_fed_once_and_in_order() -> None:
    groups = list(islice(input_groups(3, "mixed"), 200))
    numbers = [number for group in groups for number in group.numbers]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_mixed_run_has_all_kinds_of_inputs_from_the_start_and_a_plain_one_has_no_transactions() -> None:
    assert {group.written for group in islice(input_groups(4, "mixed"), 3)} == set(Writing)
    assert {group.written for group in islice(input_groups(4, "plain"), 100)} == {Writing.PLAIN}
    assert {group.written for group in islice(input_groups(4, "transactions"), 100)} == {
        Writing.COMMITTED,
        Writing.ABORTED,
    }


def test_every_second_disturbance_is_a_kill_and_all_kinds_take_turns() -> None:
    planned = list(islice(disturbances(5, 5, ALL_KINDS), 2 * (len(ALL_KINDS) - 1)))
    assert [each.kind for each in planned[::2]] == [Kind.KILL] * (len(ALL_KINDS) - 1)
    assert {each.kind for each in planned} == set(ALL_KINDS)
    assert all(1 <= each.after_s <= 5 for each in planned)


def test_a_run_may_have_one_kind_or_none() -> None:
    assert {each.kind for each in islice(disturbances(6, 5, ["pause"]), 10)} == {Kind.PAUSE}
    assert {each.kind for each in islice(disturbances(6, 5, ["kill"]), 10)} == {Kind.KILL}
    assert list(disturbances(6, 5, [])) == []


def test_the_tap_understands_every_fault_that_is_planned() -> None:
    for each in islice(disturbances(7, 5, ["delay", "lose"]), 200):
        assert parse_line(each.fault)
        assert each.seconds > 0
