"""Commands of README and docs, typed as they stand there; tests/contract/test_commands.py says which are not.

`make walk` runs this; it takes some minutes, most of them pip's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.walk import docs_steps, places
from tests.walk.steps import FIRST_REMARK, STEPS, TRAININGS, Place, Step
from tests.wheel import REPO, build_wheel

pytestmark = pytest.mark.walk
WALKED = [step for step in (*STEPS, *docs_steps.DOCS_STEPS) if step.place is not None]


class Walker:
    """Types steps, each once; makes an environment when the first step needs it."""

    def __init__(self, directory: Path) -> None:
        self._home = directory
        self.directory = directory / "user"
        self.directory.mkdir()
        places.copy_scripts(self.directory)
        docs_steps.lend(self.directory)
        self._wheel = build_wheel(directory / "built")
        self._terminals: dict[Place, places.Terminal | places.NoIndexError] = {}
        self._found: dict[str, list[places.Shown]] = {}
        self.made_s: dict[Place, float] = {}

    def binaries(self, place: Place) -> Path:
        """Where the programs of the environment are."""
        return self._home / place.name.lower() / "bin"

    def walk(self, step: Step) -> list[places.Shown]:
        """What each command line of the step showed, up to the first that was wrong."""
        if step.command not in self._found:
            assert step.place is not None
            terminal = self.terminal(step.place)
            shown: list[places.Shown] = []
            for typed in step.typed:
                shown.append(terminal.type(typed))
                if not shown[-1].is_as_said(typed):
                    break
            self._found[step.command] = shown
        return self._found[step.command]

    def terminal(self, place: Place) -> places.Terminal:
        """Of that environment. Skips the test where there is no index for it."""
        if place not in self._terminals:
            self._terminals[place] = self._open(place)
        terminal = self._terminals[place]
        if isinstance(terminal, places.NoIndexError):
            pytest.skip(f"pip cannot reach a package index: {terminal}")
        return terminal

    def _open(self, place: Place) -> places.Terminal | places.NoIndexError:
        if place is Place.CHECKOUT:
            return places.Terminal(REPO, REPO / ".venv" / "bin")
        began = time.monotonic()
        try:
            binaries = places.make(place, self._home / place.name.lower(), self._wheel)
        except places.NoIndexError as error:
            return error
        self.made_s[place] = time.monotonic() - began
        terminal = places.Terminal(self.directory, binaries)
        terminal.environment["WHEEL"] = str(self._wheel)
        if place is Place.HOST:
            terminal.environment["PYTHONPATH"] = places.host_path()
        return terminal


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    yield Walker(tmp_path_factory.mktemp("walk"))


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
    if step not in TRAININGS:
        for earlier in (*TRAININGS, *step.after):
            walker.walk(earlier)
    check(step, walker.walk(step))


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
        check(training, walker.walk(training))
    names = {path.name.partition("_2")[0] for path in (walker.directory / "logs/perf_monitor").iterdir()}
    assert {"perf_records", "perf_metrics", "perf_summary", "perf_realtime.log"} <= names
