"""The drawing of the states has every state and every legal move, and marks the way that an id took."""

from __future__ import annotations

from itertools import combinations

from fencepost.machines.txn.states import KAFKA_NAMES, LEGAL
from fencepost.web.machine import BENDS, HEIGHT, POSITIONS, WIDTH, machine_document

# As machine.js draws a state.
BOX_WIDTH, BOX_HEIGHT = 148, 36
TABLE = {(before.kafka_name, after.kafka_name) for before, allowed in LEGAL.items() for after in allowed}


def test_every_state_has_a_place_and_no_two_states_overlap() -> None:
    assert set(POSITIONS) == set(KAFKA_NAMES.values())
    for (x, y), (other_x, other_y) in combinations(POSITIONS.values(), 2):
        assert abs(x - other_x) >= BOX_WIDTH or abs(y - other_y) >= BOX_HEIGHT
    for x, y in POSITIONS.values():
        assert BOX_WIDTH / 2 <= x <= WIDTH - BOX_WIDTH / 2
        assert BOX_HEIGHT / 2 <= y <= HEIGHT - BOX_HEIGHT / 2


def test_every_legal_move_is_drawn_and_no_other() -> None:
    document = machine_document("Empty", ["Empty"])
    assert {(move["before"], move["after"]) for move in document["moves"]} == TABLE
    assert set(BENDS) <= TABLE


def test_the_current_state_is_lit_and_the_way_is_numbered() -> None:
    way = ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    document = machine_document("CompleteCommit", way)
    assert [state["name"] for state in document["states"] if state["is_current"]] == ["CompleteCommit"]
    assert {state["name"] for state in document["states"] if state["was_visited"]} == set(way)
    assert {(m["before"], m["after"]): m["steps"] for m in document["moves"] if m["steps"]} == {
        ("Empty", "Ongoing"): [1],
        ("Ongoing", "Ongoing"): [2],
        ("Ongoing", "PrepareCommit"): [3],
        ("PrepareCommit", "CompleteCommit"): [4],
    }


def test_an_unknown_id_has_no_current_state() -> None:
    document = machine_document(None, [])
    assert not any(state["is_current"] or state["was_visited"] for state in document["states"])
