"""Commands of README and docs, typed as they stand there; tests/contract/test_commands.py says which are not.

`make walk` runs this; it takes some minutes, most of them pip's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from tests.walk import docs_steps, places
from tests.walk.steps import FIRST_REMARK, STEPS, TRAININGS, Place, Step
from tests.wheel import REPO, build_wheel

pytestmark = pytest.mark.walk
T = TypeVar("T")
WALKED = [step for step in (*STEPS, *docs_steps.DOCS_STEPS) if step.place is not None]


class Walker:
    """Types steps, each once; makes an environment when the first step needs it. In each environment one
    command is typed after another, as a user does, and in all of them side by side.
    """

    def __init__(self, directory: Path) -> None:
        self._home = directory
        self.directory = directory / "user"
        self.directory.mkdir()
        places.copy_scripts(self.directory)
        docs_steps.lend(self.directory)
        self._wheel = build_wheel(directory / "built")
        self._terminals = {place: Future[places.Terminal]() for place in Place}
        self._found = {step.command: Future[list[places.Shown]]() for step in WALKED}
        self.made_s: dict[Place, float] = {}

    def walk(self, steps: Sequence[Step]) -> None:
        """Types these, and those that make what they read."""
        earlier = [each for step in steps for each in earlier_of(step)]
        chosen = [step for step in WALKED if step in steps or step in earlier]
        with ThreadPoolExecutor(len(Place)) as pool:
            for place in Place:
                pool.submit(self._walk_in, place, [step for step in chosen if step.place is place])

    def _walk_in(self, place: Place, steps: Sequence[Step]) -> None:
        resolve(self._terminals[place], partial(self._open, place))
        for step in steps:
            resolve(self._found[step.command], partial(self._type, step))

    def _type(self, step: Step) -> list[places.Shown]:
        for earlier in earlier_of(step):
            self._found[earlier.command].result()
        assert step.place is not None
        terminal = self._terminals[step.place].result()
        shown: list[places.Shown] = []
        for typed in step.typed:
            shown.append(terminal.type(typed))
            if not shown[-1].is_as_said(typed):
                break
        return shown

    def binaries(self, place: Place) -> Path:
        """Where the programs of the environment are."""
        return self._home / place.name.lower() / "bin"

    def found(self, step: Step) -> list[places.Shown]:
        """What each command line of the step showed, up to the first that was wrong."""
        return of(self._found[step.command])

    def terminal(self, place: Place) -> places.Terminal:
        """Of that environment."""
        return of(self._terminals[place])

    def _open(self, place: Place) -> places.Terminal:
        if place is Place.CHECKOUT:
            return places.Terminal(REPO, REPO / ".venv" / "bin")
        began = time.monotonic()
        binaries = places.make(place, self._home / place.name.lower(), self._wheel)
        self.made_s[place] = time.monotonic() - began
        terminal = places.Terminal(self.directory, binaries)
        terminal.environment["WHEEL"] = str(self._wheel)
        if place is Place.HOST:
            terminal.environment["PYTHONPATH"] = places.host_path()
        return terminal


def earlier_of(step: Step) -> tuple[Step, ...]:
    """Those that make what it reads. The checkout's own commands read nothing."""
    return () if step in TRAININGS or step.place is Place.CHECKOUT else (*TRAININGS, *step.after)


def resolve(future: Future[T], make: Callable[[], T]) -> None:
    """Takes what comes of it, or what it raises."""
    try:
        future.set_result(make())
    except Exception as error:  # for whoever asks the future
        future.set_exception(error)


def of(future: Future[T]) -> T:
    """What has come of it. Skips the test where there is no index."""
    try:
        return future.result(timeout=0)
    except places.NoIndexError as error:
        pytest.skip(f"pip cannot reach a package index: {error}")


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Walker:
    """Who has walked all steps of the tests that are to be run."""
    made = Walker(tmp_path_factory.mktemp("walk"))
    parameters = [getattr(item, "callspec", None) for item in request.session.items]
    steps = [each.params["step"] for each in parameters if each and "step" in each.params]
    made.walk([*TRAININGS, *steps])
    return made


def check(step: Step, shown: list[places.Shown]) -> None:
    for typed, came in zip(step.typed, shown, strict=False):
        assert came.is_as_said(typed), (
            f"{typed.words}\nexit code {came.code}; right: {typed.codes} and {typed.shows!r}\n"
            f"{came.text[-3000:]}"
        )
        if step.place is not Place.HOST:  # there it is FlagScale's own, which does not know the flag any more
            assert "Traceback (most recent call last)" not in came.text, came.text[-3000:]
    assert len(shown) == len(step.typed)


@pytest.mark.parametrize("step", WALKED, ids=lambda step: step.command)
def test_a_command_of_a_page(walker: Walker, step: Step) -> None:
    check(step, walker.found(step))


def test_the_first_remark_on_a_run_of_one_s_own_comes(
    walker: Walker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prints how long that took, counted from before the environment is made. No time is asserted."""
    shown = walker.terminal(Place.HOST).type(FIRST_REMARK)
    trained = (walker.directory / "first.txt").read_text()
    assert shown.is_as_said(FIRST_REMARK), shown.text[-3000:] + trained[-3000:]
    took_s = walker.made_s[Place.HOST] + shown.came_s
    with capsys.disabled():
        print(f"\nthe first remark on a slow rank came {took_s:.0f} s after the environment was begun")


@pytest.mark.parametrize("place", [Place.WHEEL, Place.BARE, Place.HOST], ids=lambda place: place.name)
def test_the_wheel_is_what_was_walked(walker: Walker, place: Place) -> None:
    walker.terminal(place)
    assert walker.binaries(place).parent in places.home_of_package(walker.binaries(place)).parents


def test_the_trainings_wrote_what_the_readme_names(walker: Walker) -> None:
    for training in TRAININGS:
        check(training, walker.found(training))
    names = {path.name.partition("_2")[0] for path in (walker.directory / "logs/perf_monitor").iterdir()}
    assert {"perf_records", "perf_metrics", "perf_summary", "perf_realtime.log"} <= names
