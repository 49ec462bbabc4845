"""The addresses of Learn: `/learn`, `/learn/playground` and `/learn/DEMO`. None of them needs a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from fencepost.spelling import did_you_mean
from fencepost.testing import BrokerFailed
from fencepost.web.cluster import WatchedCluster
from fencepost.web.learn.demos import DEMOS, Demo
from fencepost.web.learn.playground.buttons import OF_PRODUCER, OF_WORLD, PRODUCERS, Button, Click
from fencepost.web.learn.playground.guide import GUIDE
from fencepost.web.learn.playground.recipes import RECIPES
from fencepost.web.learn.playground.session import BadClick, Playground
from fencepost.web.learn.sessions import EmbeddedSession, Sessions, TooMany
from fencepost.web.learn.stepping import DemoRun
from fencepost.web.page import Document, Page, PageAction, PageRefused, Params, SubjectNotFound

# A run is in the memory of this process, a playground is asked.
RUN_REFRESH_S, PLAYGROUND_REFRESH_S = 0.5, 1.0
SWEEP_S = 10.0
STEP_S = 10.0
MOST_RUNS = 4
MOST_PLAYGROUNDS = 4
ENDED = "it has ended: it was closed, or not used for ten minutes, or its tab was left and another one needed the place"

Given = Mapping[str, Any]
T = TypeVar("T", bound=EmbeddedSession)


class Learn:
    """The demos and playgrounds that are open. `close` ends every embedded broker."""

    def __init__(self) -> None:
        self.runs: Sessions[DemoRun] = Sessions(MOST_RUNS, what="demos")
        self.playgrounds: Sessions[Playground] = Sessions(MOST_PLAYGROUNDS, what="playgrounds")
        self._is_closed = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="learn-sweeper", daemon=True)
        self._sweeper.start()

    def close(self) -> None:
        self._is_closed.set()
        runs = threading.Thread(target=self.runs.close_all)
        runs.start()
        self.playgrounds.close_all()
        runs.join()

    def _sweep(self) -> None:
        while not self._is_closed.wait(SWEEP_S):
            self.runs.close_idle()
            self.playgrounds.close_idle()


def _open(sessions: Sessions[T], make: Callable[[], T]) -> str:
    """The id of a new session."""
    try:
        id_, _ = sessions.open(make)
    except TooMany as e:
        raise PageRefused(str(e)) from None
    except BrokerFailed as e:
        raise PageRefused(f"the embedded broker did not start: {e}") from None
    return id_


def _own(do: Callable[[WatchedCluster, Params, Given], Document]) -> PageAction:
    """An action on the embedded broker: it needs no permission, and nothing has to be confirmed."""
    return PageAction(says=do, do=do, needs_permission=False)


def _ending(text: str, end: Callable[[Learn, Given], None]) -> PageAction:
    def do(cluster: WatchedCluster, params: Params, given: Given) -> Document:
        end(cluster.own(Learn), given)
        return {"text": text}

    return _own(do)


# --- /learn -----------------------------------------------------------------------------------------------


def ask_index(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> Document:
    return {"demos": [demo_document(demo) for demo in DEMOS.values()], "errors": len(RECIPES)}


INDEX = Page(path="/learn", script="learn.js", title="Learn", nav="Learn", ask=ask_index, needs_cluster=False)


# --- /learn/DEMO ------------------------------------------------------------------------------------------


def ask_demo(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> Document:
    demo = find_demo(params)
    run = cluster.own(Learn).runs.find(query.get("run", ""))
    return {
        **demo_document(demo),
        "run": None if run is None else run.document(),
        "ended": ENDED if run is None and "run" in query else None,
    }


def start_demo(cluster: WatchedCluster, params: Params, given: Given) -> Document:
    demo = find_demo(params)
    if (missing := demo.why_not()) is not None:
        raise PageRefused(f"{demo.name} cannot play here: {missing}")
    return {"run": _open(cluster.own(Learn).runs, lambda: DemoRun(demo)), "text": f"{demo.name} is ready"}


def _steering(steer: Callable[[DemoRun], None]) -> PageAction:
    def do(cluster: WatchedCluster, params: Params, given: Given) -> Document:
        run = cluster.own(Learn).runs.use(str(given.get("run", "")))
        if run is None:
            raise SubjectNotFound(f"this run is not here any more: {ENDED}")
        steer(run)
        # A step that takes longer is shown when it is done.
        run.await_pause(STEP_S)
        return {"text": ""}

    return _own(do)


DEMO = Page(
    path="/learn/{demo}",
    script="learn-demo.js",
    title="Learn: {demo}",
    ask=ask_demo,
    needs_cluster=False,
    refresh_s=RUN_REFRESH_S,
    actions={
        "start": _own(start_demo),
        "next": _steering(DemoRun.next),
        "play": _steering(DemoRun.play),
        "pause": _steering(DemoRun.pause),
        "close": _ending("closed", lambda learn, given: learn.runs.close(str(given.get("run", "")))),
        "leave": _ending("left", lambda learn, given: learn.runs.leave(str(given.get("run", "")))),
    },
)


# --- /learn/playground ------------------------------------------------------------------------------------


def ask_playground(cluster: WatchedCluster, params: Params, query: Mapping[str, str]) -> Document:
    playground = cluster.own(Learn).playgrounds.find(query.get("session", ""))
    return {
        "buttons": {
            "producer": [button_document(button) for button in OF_PRODUCER],
            "world": [button_document(button) for button in OF_WORLD],
        },
        "producer_names": list(PRODUCERS),
        "guide": [
            {"ask": step.ask, "label": step.label, "happened": step.happened, **step.click._asdict()} for step in GUIDE
        ],
        "recipes": [recipe.document() for recipe in RECIPES.values()],
        "playground": None if playground is None else playground.document(),
        "ended": ENDED if playground is None and "session" in query else None,
    }


def open_playground(cluster: WatchedCluster, params: Params, given: Given) -> Document:
    return {"session": _open(cluster.own(Learn).playgrounds, Playground), "text": "the playground is ready"}


def click_button(cluster: WatchedCluster, params: Params, given: Given) -> Document:
    producer = str(given.get("producer", PRODUCERS[0]))
    click = Click(str(given.get("button", "")), str(given.get("option", "")), producer)
    return {"clicked": _clicked(_playground(cluster, given), click), "text": ""}


def follow_recipe(cluster: WatchedCluster, params: Params, given: Given) -> Document:
    """Start over, and do all clicks of a recipe."""
    playground = _playground(cluster, given)
    code = given.get("code")
    recipe = RECIPES.get(code) if isinstance(code, int) else None
    if recipe is None:
        raise PageRefused(f"there is no recipe for error {code!r}\n\nhint: the page lists the errors that have one")
    clicked = [_clicked(playground, click) for click in (Click("reset"), *recipe.clicks)]
    return {"clicked": clicked[-1], "text": ""}


def _playground(cluster: WatchedCluster, given: Given) -> Playground:
    playground = cluster.own(Learn).playgrounds.use(str(given.get("session", "")))
    if playground is None:
        raise SubjectNotFound(f"this playground is not here any more: {ENDED}")
    return playground


def _clicked(playground: Playground, click: Click) -> Document:
    try:
        return playground.click(click)
    except BadClick as e:
        raise PageRefused(str(e)) from None


PLAYGROUND = Page(
    path="/learn/playground",
    script="learn-playground.js",
    title="Playground",
    ask=ask_playground,
    needs_cluster=False,
    refresh_s=PLAYGROUND_REFRESH_S,
    actions={
        "open": _own(open_playground),
        "click": _own(click_button),
        "recipe": _own(follow_recipe),
        "close": _ending("closed", lambda learn, given: learn.playgrounds.close(str(given.get("session", "")))),
        "leave": _ending("left", lambda learn, given: learn.playgrounds.leave(str(given.get("session", "")))),
    },
)

# The playground comes before the demos, whose address would be the same.
PAGES = (INDEX, PLAYGROUND, DEMO)


def find_demo(params: Params) -> Demo:
    name = params["demo"]
    if name not in DEMOS:
        hint = did_you_mean(name, DEMOS) or f"there are {', '.join(DEMOS)}"
        raise SubjectNotFound(f"there is no demo {name}\n\nhint: {hint}")
    return DEMOS[name]


def demo_document(demo: Demo) -> dict[str, Any]:
    return {"name": demo.name, "title": demo.title, "about": demo.about, "why_not": demo.why_not()}


def button_document(button: Button) -> dict[str, Any]:
    return {**asdict(button), "options": dict(button.options)}
