"""Whether a program made one output of each input in each output topic, and committed the offsets that fit. Pure.

The history is that of `fencepost verify pipeline`. Records are known by the id of their input: reads by `inputs` are
the committed inputs, reads by `outputs` the ids that outputs name. What may still come is accused only after `Rest`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.verify.checkers.kinds import Anomaly
from fencepost.verify.history import Committed, Event, Header, Poll, Rest, Send, Watermarks

PIPELINE = "pipeline"
INPUTS, OUTPUTS = "inputs", "outputs"


def is_pipeline(header: Header) -> bool:
    return header.what.get("verify") == PIPELINE


class Place(NamedTuple):
    """A record that was read: where, and by which event."""

    topic: str
    partition: int
    offset: int
    poll: Poll

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class PipelineHistory:
    """The history of a pipeline, by input."""

    def __init__(self, header: Header, events: Iterable[Event]) -> None:
        self.topics = [topic for topic in header.topics if topic != header.what["input"]]
        self.sends: dict[str, Send] = {}
        self.inputs: dict[str, list[Place]] = defaultdict(list)
        self.outputs: dict[str, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))  # By id, by topic.
        self.committed: Committed | None = None
        self.watermarks: list[Watermarks] = []
        self.rest: Rest | None = None
        for event in events:
            match event:
                case Send():
                    self.sends[event.value] = event
                case Poll(by=reader):
                    for offset, id_ in event.records:
                        place = Place(event.topic, event.partition, offset, event)
                        if reader == INPUTS:
                            self.inputs[id_].append(place)
                        elif reader == OUTPUTS:
                            self.outputs[id_][event.topic].append(place)
                case Committed():
                    self.committed = event
                case Watermarks():
                    self.watermarks.append(event)
                case Rest():
                    self.rest = event
                case _:
                    pass
        self.offsets = {} if self.committed is None else {(t, p): offset for t, p, offset in self.committed.offsets}

    def proof(self, id_: str, *others: Event | None) -> tuple[Event, ...]:
        """All events about an input."""
        found: list[Event | None] = [self.sends.get(id_), *(place.poll for place in self.inputs.get(id_, ()))]
        found += [place.poll for places in self.outputs.get(id_, {}).values() for place in places]
        return tuple({id(event): event for event in [*found, *others] if event is not None}.values())

    def is_passed(self, place: Place) -> bool:
        """The group's committed offset is behind the input, so it will not read it again."""
        reached: int = self.offsets.get((place.topic, place.partition), -1)
        return place.offset < reached


def check_pipeline(header: Header, events: Iterable[Event]) -> list[Anomaly]:
    pipeline = PipelineHistory(header, events)
    found = [*check_doubled(pipeline), *check_aborted_inputs(pipeline), *check_unknown_inputs(pipeline)]
    if pipeline.rest is not None:
        found += [*check_missing(pipeline), *check_repeated(pipeline), *check_held_back(pipeline)]
    return found


def check_doubled(pipeline: PipelineHistory) -> Iterator[Anomaly]:
    for id_, by_topic in pipeline.outputs.items():
        # A plain input may be in the topic twice, if the verifier had to send it again.
        inputs = max(len(pipeline.inputs.get(id_, ())), 1)
        doubled = [
            f"{topic} has {len(places)} outputs of it: {', '.join(map(str, places))}"
            for topic, places in by_topic.items()
            if len(places) > inputs
        ]
        if doubled:
            times = "once" if inputs == 1 else f"{inputs} times"
            what = f"{id_} was written to the input {times}; {'; '.join(doubled)}"
            yield Anomaly("duplicate", what, pipeline.proof(id_))


def check_aborted_inputs(pipeline: PipelineHistory) -> Iterator[Anomaly]:
    """Only at rest is known which inputs were committed, unless the history has their end."""
    if pipeline.rest is None:
        return
    for id_, by_topic in pipeline.outputs.items():
        if id_ in pipeline.sends and id_ not in pipeline.inputs:
            places = [place for found in by_topic.values() for place in found]
            what = f"{id_} was in a transaction that was aborted, and there are outputs of it: "
            yield Anomaly("aborted-input", what + ", ".join(map(str, places)), pipeline.proof(id_))


def check_unknown_inputs(pipeline: PipelineHistory) -> Iterator[Anomaly]:
    for id_, by_topic in pipeline.outputs.items():
        if id_ not in pipeline.sends:
            places = ", ".join(str(place) for found in by_topic.values() for place in found)
            yield Anomaly("invented", f"outputs name {id_}, which was never an input: {places}", pipeline.proof(id_))


def check_missing(pipeline: PipelineHistory) -> Iterator[Anomaly]:
    """Each input with a missing output is accused once: torn, skipped for ever, missing, or not processed yet."""
    for id_, places in pipeline.inputs.items():
        without = [topic for topic in pipeline.topics if not pipeline.outputs.get(id_, {}).get(topic)]
        if not without:
            continue
        where, proof = places[0], pipeline.proof(id_, pipeline.committed)
        if len(without) < len(pipeline.topics):
            there = ", ".join(str(found[0]) for found in pipeline.outputs[id_].values() if found)
            yield Anomaly("torn-output", f"{id_} has an output at {there}, and none in {', '.join(without)}", proof)
        elif pipeline.committed is None:
            yield Anomaly("missing-output", f"{id_} at {where} has no output", proof)
        elif pipeline.is_passed(where):
            offset = pipeline.offsets[where.topic, where.partition]
            what = f"{id_} at {where} has no output, and the offset of {pipeline.committed.group} is {offset}, past it"
            yield Anomaly("offsets-ahead", what, proof)
        else:
            offset = pipeline.offsets.get((where.topic, where.partition), -1)
            reached = f"is {offset}" if offset >= 0 else "does not exist"
            what = f"{id_} at {where} has no output yet; the offset of {pipeline.committed.group} {reached}"
            yield Anomaly("unprocessed-input", what, proof)


def check_repeated(pipeline: PipelineHistory) -> Iterator[Anomaly]:
    """Inputs with outputs that the group would read again. One anomaly for each partition."""
    if pipeline.committed is None:
        return
    again: dict[tuple[str, int], list[tuple[Place, str]]] = defaultdict(list)
    for id_, places in pipeline.inputs.items():
        for place in places:
            if pipeline.outputs.get(id_) and not pipeline.is_passed(place):
                again[place.topic, place.partition].append((place, id_))
    for (topic, partition), found in sorted(again.items()):
        first, id_ = min(found, key=lambda each: each[0].offset)
        offset = pipeline.offsets.get((topic, partition))
        reached = f"is {offset}" if offset is not None else "does not exist"
        yield Anomaly(
            "offsets-behind",
            f"{len(found)} inputs of {topic}-{partition} have outputs and will be processed again: the offset of "
            f"{pipeline.committed.group} {reached}, and {id_} at offset {first.offset} is the first of them",
            pipeline.proof(id_, pipeline.committed),
        )


def check_held_back(pipeline: PipelineHistory) -> Iterator[Anomaly]:
    for event in pipeline.watermarks:
        if event.last_stable_offset < event.high_watermark:
            yield Anomaly(
                "stuck-LSO",
                f"a transaction is still open on {event.topic}-{event.partition}: its last stable offset is "
                f"{event.last_stable_offset}, its high watermark {event.high_watermark}",
                (event,),
            )
