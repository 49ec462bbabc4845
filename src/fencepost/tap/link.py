"""One connection of a client, and the connection to the broker behind it.

Requests go one way and replies the other, in order. `sides.py` has the two ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.faults.errors_in_replies import refusal, stamped
from fencepost.faults.fault import DELAY, DISCONNECT, DROP, DUPLICATE, ERROR, REPLY, REQUEST, Fault
from fencepost.protocol import errors
from fencepost.protocol.apis import api_names
from fencepost.protocol.schema import Malformed
from fencepost.protocol.walking import Buffer
from fencepost.tap import rewriting
from fencepost.tap.decoding import (
    DECODED,
    FETCH,
    METADATA,
    Decoded,
    WireEvent,
    decode_reply,
    decode_request,
    topic_names_in,
)
from fencepost.tap.frames import LENGTH_BYTES, BrokenFrame, RequestHead, is_raw_login, read_head
from fencepost.tap.sides import BrokerSide, ClientSide

if TYPE_CHECKING:
    from fencepost.tap.proxy import Proxy, TapPort

# A client that sends nothing more gets replies for this time. Most have closed the connection, and read none.
HALF_CLOSED_S = 10.0
HEADER_BYTES = 10  # Of a request: what a reply with an error needs of it.


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """A request that has no reply yet."""

    head: RequestHead
    begin: bytes  # Its first bytes.
    at_ns: int
    decoded: Decoded | None = None
    wants_whole: bool = False  # The reply has to come whole.
    answer: list[bytes] | None = None  # Of the tap, in place of the broker's.
    fault: str | None = None
    is_duplicate: bool = False  # Its reply is not passed on.


class Link:
    def __init__(self, tap: Proxy, listener: TapPort, number: int) -> None:
        self.tap = tap
        self.listener = listener
        self.number = number
        self.client = ClientSide(self)
        self.broker = BrokerSide(self)
        self.pending: deque[WaitingRequest] = deque()
        self.client_address = ""
        self.broker_address = ""
        self.own_host = ""
        self.is_opaque = False  # Frames without headers pass.
        self.is_replying = False  # A reply has begun to arrive, and the client does not have all of it yet.
        self.is_closed = False

    # --- its life -----------------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to the broker; the client waits."""
        try:
            self.broker_address = await self.tap.connect(self)
        except OSError as e:
            self.tap.complain(f"connection #{self.number} of {self.client_address}: {e}", str(e))
            self.close()
            return
        if self.is_closed:
            self.broker.close()  # The client has left meanwhile.
        self.client.release()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.tap.links.discard(self)
            for sent in self.pending:
                if sent.decoded is not None:
                    self.report("unanswered", sent, sent.decoded)
            self.client.close()
            self.broker.close()

    def end_requests(self) -> None:
        """The client sends nothing more. It may have closed only this direction, so it still gets its replies."""
        is_deaf = self.client.is_deaf or self.broker.is_deaf
        if not self.has_unanswered or is_deaf or self.is_opaque:
            self.close()
        else:
            asyncio.get_running_loop().call_later(HALF_CLOSED_S, self.close)

    def end_delay(self, fault: Fault) -> None:
        self.client.end_delay(fault)
        self.broker.end_delay(fault)

    def fail(self, problem: str) -> None:
        self.tap.complain(f"connection #{self.number} of {self.client_address}: {problem}")
        self.close()

    # --- requests -----------------------------------------------------------------------------------------

    def take_request(self, frame: memoryview, is_whole: bool = True) -> None:
        """A request with its length, or the first piece of a large one."""
        body = frame[LENGTH_BYTES:]
        head = read_head(body)
        sent = WaitingRequest(head, bytes(body[:HEADER_BYTES]), time.time_ns())
        tap = self.tap
        if head.api_key in DECODED or (tap.shows_fetches and head.api_key == FETCH):
            sent.decoded = decode_request(body, head.api_key, head.version, tap.topic_name, tap.shows_fetches)
        sent.wants_whole = wants_whole_reply(sent) or (
            not tap.faults.is_idle and bool(tap.faults.concerning(head.api_key, head.client_id, REPLY))
        )
        if is_whole and not tap.faults.is_idle:
            for fault in tap.faults.concerning(head.api_key, head.client_id, REQUEST):
                if self._strikes_request(fault, frame, sent):
                    return
        self._send(frame, sent)

    def _send(self, frame: memoryview, sent: WaitingRequest) -> None:
        if sent.decoded is not None or sent.fault is not None:
            self.report("request", sent, sent.decoded or Decoded())
        if sent.head.is_answered:
            self.pending.append(sent)
        if is_raw_login(sent.head):
            self.is_opaque = True
            self.tap.complain(
                f"connection #{self.number} of {self.client_address} logs in with SaslHandshake v0: what follows "
                "passes undecoded, and its addresses stay as they are; a client of Kafka 1.0 or later uses v1"
            )
        self.broker.write(frame)
        if self.is_opaque:
            self.client.pass_rest()
            self.broker.pass_rest()

    def _strikes_request(self, fault: Fault, frame: memoryview, sent: WaitingRequest) -> bool:
        answer: list[bytes] | None = []
        if fault.action == ERROR and sent.head.is_answered:
            answer = refusal(frame[LENGTH_BYTES:], fault.error_code)
            if answer is None:
                return False  # This version of the API has no place for an error.
        if not fault.strikes():
            return False
        sent.fault = name_of(fault)
        if fault.action == DUPLICATE:
            self._send(frame, sent)
            again = WaitingRequest(sent.head, sent.begin, sent.at_ns, sent.decoded, wants_whole=True, is_duplicate=True)
            if sent.head.is_answered:
                self.pending.append(again)
            self.broker.write(frame)
        elif fault.action == DELAY:
            self.client.hold_for(fault, lambda: self._send(frame, sent))
        else:
            self.report("request", sent, sent.decoded or Decoded())
            if fault.action == ERROR:
                if sent.head.is_answered:
                    sent.answer = answer
                    self.pending.append(sent)
                    self.give_own_answers()
            else:
                self.end_without_answer(fault)
        return True

    def end_without_answer(self, fault: Fault) -> None:
        if fault.action == DISCONNECT:
            self.close()
        else:
            # A connection is served in order, so its client receives nothing more until it connects again.
            self.client.is_deaf = True
            fault.hanging = [*(link for link in fault.hanging if not link.is_closed), self]

    # --- replies ------------------------------------------------------------------------------------------

    def wants_whole_next(self) -> bool:
        return bool(self.pending) and self.pending[0].wants_whole

    def begin_reply(self, frame: memoryview) -> WaitingRequest:
        """The request that a reply belongs to. Raises BrokenFrame."""
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        if not self.pending:
            raise BrokenFrame(f"{self.broker_address} answers request {correlation_id}, but no request waits")
        sent = self.pending[0]
        if sent.head.correlation_id != correlation_id:
            raise BrokenFrame(
                f"{self.broker_address} answers request {correlation_id}, expected {sent.head.correlation_id}"
            )
        self.is_replying = True
        return self.pending.popleft()

    def end_reply(self) -> None:
        self.is_replying = False
        self.give_own_answers()
        if self.client.has_sent_all and not self.has_unanswered:
            self.close()

    @property
    def has_unanswered(self) -> bool:
        """Whether the client has to get a reply, or the rest of one."""
        return bool(self.pending) or self.is_replying

    def take_reply(self, frame: memoryview) -> None:
        sent = self.begin_reply(frame)
        head, faults = sent.head, self.tap.faults
        fault: Fault | None = None
        passed: Buffer = frame
        if not faults.is_idle and not sent.is_duplicate:
            for each in faults.concerning(head.api_key, head.client_id, REPLY):
                changed = stamped(sent.begin, [bytes(frame)], each.error_code) if each.action == ERROR else []
                if changed is not None and each.strikes():
                    fault = each
                    passed = b"".join(changed) if changed else frame
                    break
        sent.fault = None if fault is None else name_of(fault)
        if head.api_key in rewriting.WITH_ADDRESSES:
            passed = self._rewritten(passed, head)
        seen: Decoded | None = None
        if sent.decoded is not None or fault is not None or sent.is_duplicate:
            seen = self._decoded_reply(passed if fault is not None and fault.action == ERROR else frame, sent)
        if fault is not None and fault.action == DELAY:
            self.broker.hold_for(fault, lambda: self._give(passed, sent, seen))
        elif fault is not None and fault.action != ERROR:
            if seen is not None:
                self.report("reply", sent, seen)
            if fault.action == DROP:
                self.broker.is_deaf = True
            self.end_without_answer(fault)
        else:
            self._give(passed, sent, seen)

    def _decoded_reply(self, frame: Buffer, sent: WaitingRequest) -> Decoded:
        if sent.decoded is None:
            return Decoded()
        body, head = memoryview(frame)[LENGTH_BYTES:], sent.head
        return decode_reply(body, head.api_key, head.version, sent.decoded, self.tap.topic_name)

    def _give(self, frame: Buffer, sent: WaitingRequest, seen: Decoded | None) -> None:
        if seen is not None:
            self.report("reply", sent, seen)
        if not sent.is_duplicate:
            self.client.write(frame)
        self.end_reply()

    def give_own_answers(self) -> None:
        """Answers of the tap wait for the replies to earlier requests."""
        while not self.is_replying and self.pending and self.pending[0].answer is not None:
            sent = self.pending.popleft()
            answer = b"".join(sent.answer or ())
            self.report("reply", sent, self._decoded_reply(answer, sent))
            self.client.write(answer)

    def _rewritten(self, frame: Buffer, head: RequestHead) -> Buffer:
        if not rewriting.knows_addresses(head.api_key, head.version):
            self.tap.warn_of_version(head.api_key, head.version)
            return frame
        if head.api_key == METADATA:
            self.tap.learn_topics(topic_names_in(memoryview(frame)[LENGTH_BYTES:], head.version))
        try:
            return rewriting.rewritten(frame, head.api_key, head.version, self._address_of)
        except Malformed as e:
            self.tap.complain(f"connection #{self.number}: a reply of {self.broker_address} is passed on as it is: {e}")
            return frame

    def _address_of(self, node_id: int, host: str, port: int) -> tuple[str, int] | None:
        return self.tap.address_of(node_id, host, port, self.own_host)

    # --- events -------------------------------------------------------------------------------------------

    def report(self, kind: str, sent: WaitingRequest, decoded: Decoded) -> None:
        now_ns, head = time.time_ns(), sent.head
        error = decoded.error
        self.tap.show(
            WireEvent(
                (sent.at_ns if kind == "request" else now_ns) // 1000,
                kind,
                self.number,
                self.client_address,
                head.client_id,
                self.broker_address,
                self.listener.node_id,
                api_names().get(head.api_key, f"API {head.api_key}"),
                head.version,
                head.correlation_id,
                decoded.transactional_id,
                decoded.producer_id,
                decoded.producer_epoch,
                decoded.about,
                error,
                None if kind == "request" else max((now_ns - sent.at_ns) // 1000, 0),
                "the reply to a duplicate, not passed on" if sent.is_duplicate else sent.fault,
            )
        )


def wants_whole_reply(sent: WaitingRequest) -> bool:
    """Replies with addresses come whole, because their length may change; of Fetch, they are hidden instead."""
    if sent.decoded is not None:
        return True
    return sent.head.api_key in rewriting.WITH_ADDRESSES and sent.head.api_key != rewriting.FETCH


def name_of(fault: Fault) -> str:
    detail = {ERROR: errors.name_of(fault.error_code), DELAY: f"{fault.delay_ms} ms"}.get(fault.action, "")
    return f"{fault.action} {detail}".strip()
