"""A tap in a test: a proxy in front of any Kafka, which shows its transactions and causes faults.

    with Tap("kafka:9092") as tap:
        lost = tap.faults.disconnect_on("EndTxn")
        Producer({"bootstrap.servers": tap.bootstrap_servers})

The tap runs in a thread of the test's own process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fencepost.testing.faults import Faults, OrderRefused

if TYPE_CHECKING:
    from fencepost.tap.decoding import WireEvent

MOST_EVENTS = 10_000


class Tap:
    """A tap that is started on entry and stopped on exit, or with `start` and `stop`."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        settings: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        fetches: bool = False,
    ) -> None:
        """`settings` are those of Kafka's clients, for the connections to the cluster. `fetches`: show Fetch too."""
        # Imported here, so that a test run without a tap starts as fast as before.
        from fencepost.client.settings import parse_settings
        from fencepost.tap.proxy import Proxy
        from fencepost.tap.running import TapThread

        self._events: deque[WireEvent] = deque(maxlen=MOST_EVENTS)
        self.remarks: list[str] = []  # What `fencepost tap` prints as warnings.
        self._tap = Proxy(
            parse_settings({"bootstrap.servers": bootstrap_servers, **(settings or {})}),
            (host, port),
            show=self._events.append,
            say=self.remarks.append,
            shows_fetches=fetches,
        )
        self._thread = TapThread(self._tap)
        self.faults = Faults(self._order)

    @property
    def bootstrap_servers(self) -> str:
        return self._tap.address

    @property
    def events(self) -> list[WireEvent]:
        """The last requests and replies of transactions, the oldest first."""
        return self._thread.call(lambda: list(self._events))

    def start(self) -> None:
        """Raises PortUnusable, or Unreached if the cluster does not answer."""
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def __enter__(self) -> Tap:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _order(self, order: str, **given: Any) -> Any:
        from fencepost.faults.fault import BadFault

        try:
            return self._thread.call(lambda: self._carry_out(order, given))
        except BadFault as e:
            raise OrderRefused(str(e)) from None

    def _carry_out(self, order: str, given: dict[str, Any]) -> Any:
        if order == "add_fault":
            from fencepost.faults.fault import parse_fault

            return self._tap.add_fault(parse_fault(**given))
        if order == "hits":
            return self._tap.faults.hits(given["fault"])
        if order == "remove_fault":
            return self._tap.remove_fault(given["fault"])
        assert order == "clear_faults", order
        return self._tap.clear_faults()
