"""`make pictures`: the pictures of docs/images, from real runs of this code.

    python -m tests.pictures [--runs DIRECTORY] [NAME ...]

A run of each instrument is made where DIRECTORY (build/pictures) has none, which takes minutes; delete it for
new ones. Every page is also kept there at 1280 and 390 pixels, light and dark, to be looked at.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from tests.browser import Browser, browser
from tests.processes.planted_runs import Plant, train
from tests.terminal import page_of, terminal

REPO = Path(__file__).resolve().parents[1]
IMAGES = REPO / "docs/images"
WIDTHS, THEMES = (1280, 390), ("light", "dark")
COLOURS = 256  # of a picture
WATCH, FIGURE = "watch.png", "report.png"
COLUMNS, ROWS = 110, 24  # of the terminal


class View(NamedTuple):
    """A part of a page that docs show: from its top, so many pixels high."""

    image: str
    height: int
    width: int = 1280
    theme: str = "light"


class Shown(NamedTuple):
    """A page: the command that makes it, of flagscale-perf in the directory of runs, and its views."""

    command: str
    views: tuple[View, ...]


PAGES = {
    "training": Shown(
        "report training/perf",
        (
            View("first_screen.png", 1000),
            View("report_page.png", 3000),
            View("report_page_narrow.png", 2400, 390, "dark"),
        ),
    ),
    "compare": Shown("compare usual/perf training/perf", (View("compare_page.png", 2000),)),
    "runs": Shown("runs .", ()),
    "calls": Shown("report calls/perf", (View("calls.png", 1000),)),
    "trace": Shown("report trace/trace", (View("trace.png", 1000),)),
    "profile": Shown("report profile/thrice", (View("profile.png", 1000),)),
    "bench": Shown("report bench", (View("bench.png", 1000),)),
}


def _script(name: str, python: str) -> Callable[[Path], None]:
    def make(directory: Path) -> None:
        # Relative, as the program prints it: a picture names no path of this machine.
        words = [f"scripts/{name}", python, os.path.relpath(directory, REPO)]
        subprocess.run(words, cwd=REPO, check=True)

    return make


def _training(*plants: Plant) -> Callable[[Path], None]:
    def make(directory: Path) -> None:
        train(plants, 2, directory)

    return make


def _bench(directory: Path) -> None:
    _report(directory.parent, "bench", "bandwidth", "--quick", "-o", directory.name)


def _profile(directory: Path) -> None:
    """Of a model one of whose layers does everything three times."""
    subprocess.run([sys.executable, "-m", "tests.planted_layers", str(directory), "0"], cwd=REPO, check=True)


RUNS: dict[str, Callable[[Path], None]] = {
    "training": _training(Plant("forward", "constant", rank=1)),
    "usual": _training(),
    "calls": _script("demo_rpc", ".venv/bin/python"),
    "profile": _profile,
    "bench": _bench,
    "trace": _script("demo_trace", ".venv_trace/bin/python"),
}


def make_runs(runs: Path) -> None:
    """Those that are not there yet."""
    for name, make in RUNS.items():
        finished = runs / f"{name}.done"
        if not finished.exists():
            shutil.rmtree(runs / name, ignore_errors=True)
            (runs / name).mkdir(parents=True)
            make(runs / name)
            finished.touch()


def draw(tab: Browser, runs: Path, name: str) -> None:
    """The page's pictures for docs, and those to be looked at."""
    page = runs / f"{name}.html"
    _report(runs, *PAGES[name].command.split(), "--format", "html", "-o", page.name)
    for theme in THEMES:
        for width in WIDTHS:
            tab.show(page, width, theme)
            _keep(tab.picture(), runs / f"{name}_{width}_{theme}.png")
            for view in PAGES[name].views:
                if (view.width, view.theme) == (width, theme):
                    _keep(tab.picture(height=view.height), IMAGES / view.image)
    assert not tab.seen.complaints, tab.seen


def draw_terminal(tab: Browser, runs: Path) -> None:
    """What `flagscale-perf watch` shows of the training."""
    words = ["env", "-C", str(runs), sys.executable, "-m", "flagscale_perf", "watch", "training/perf"]
    with terminal(runs, words, columns=COLUMNS, rows=ROWS) as screen:
        tab.wait_until(lambda: "Ctrl-C quits" in screen.text())  # the last line
        shown = screen.text("-e")
    page = runs / "watch.html"
    page.write_text(page_of(shown, COLUMNS), encoding="utf-8")
    tab.show(page, 1280, "dark")
    box = "document.querySelector('pre').getBoundingClientRect()"
    width, height = (int(tab.evaluate(f"Math.ceil({box}.{side})")) for side in ("width", "height"))
    _keep(tab.picture("pre"), IMAGES / WATCH, (0, 0, width, height))


def _report(runs: Path, *words: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(REPO)}
    subprocess.run([sys.executable, "-m", "flagscale_perf", *words], cwd=runs, env=environment, check=True)


def _keep(picture: bytes, path: Path, box: tuple[int, int, int, int] | None = None) -> None:
    image = Image.open(io.BytesIO(picture)).convert("RGB").crop(box)
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def main(arguments: list[str]) -> None:
    """Makes the runs that are missing, and draws."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=main.__doc__)
    parser.add_argument("--runs", type=Path, default=REPO / "build/pictures")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PAGES)} (default: all)")
    args = parser.parse_args(arguments)
    runs = args.runs.resolve()
    make_runs(runs)
    with browser() as tab:
        for name in args.names or PAGES:
            draw(tab, runs, name)
        draw_terminal(tab, runs)
    figure = os.path.relpath(IMAGES / FIGURE, runs)
    _report(runs, "report", "training/perf", "--format", "png", "-o", figure)


if __name__ == "__main__":
    main(sys.argv[1:])
