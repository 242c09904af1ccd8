"""A terminal (tmux's) in which a command runs, and a picture of it.

`python -m tests.terminal [--columns 110] [--rows 24] [--seconds 3] OUT.png COMMAND ...` keeps a picture of
what the command shows then.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.browser import browser

_BACKGROUND, _FOREGROUND = "1a1b1f", "d6d8de"
# black, red, green, yellow, blue, magenta, cyan, white
_NORMAL = "3b3d45 e06c75 7ec76c e5c07b 5680cd c678dd 56b6c2 c8cacf"
_BRIGHT = "7d808a f08088 98dc84 f0d08c 78a0eb d796eb 78cdd7 ffffff"
_PAGE = """<!DOCTYPE html><html data-drawn="true"><meta charset="utf-8"><style>{stylesheet}
body {{ color: {foreground}; background: {background}; margin: 0 }}
pre {{ font: 16px/1.25 "DejaVu Sans Mono", monospace; padding: 10px 12px; margin: 0 }}
pre {{ width: max-content }}</style>
<pre>{code}</pre></html>"""


class Terminal:
    """Runs `words` under a shell that outlives Ctrl-C and stays until `close`."""

    def __init__(
        self, socket: Path, words: list[str], then: str = ":", columns: int = 100, rows: int = 30
    ) -> None:
        """Args: then: what the shell does after the command, whose exit status is `$?`."""
        self._tmux = ["tmux", "-S", str(socket), "-f", os.devnull]
        shell = f"trap : INT; {shlex.join(words)}; {then}; cat"
        environment = os.environ | {"LC_ALL": "C.UTF-8"}
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), "sh", "-c", shell],
            env=environment,
            check=True,
        )

    def text(self, *options: str) -> str:
        """What is shown; options of `tmux capture-pane`, such as `-e` for its colours."""
        return subprocess.run(
            [*self._tmux, "capture-pane", "-p", *options], capture_output=True, text=True, check=True
        ).stdout

    def press(self, key: str) -> None:
        """As tmux names it."""
        subprocess.run([*self._tmux, "send-keys", key], check=True)

    def resize(self, columns: int, rows: int = 30) -> None:
        """The window, while the command runs."""
        subprocess.run([*self._tmux, "resize-window", "-x", str(columns), "-y", str(rows)], check=True)

    def close(self) -> None:
        """Ends the command."""
        subprocess.run([*self._tmux, "kill-server"], check=True)


@contextmanager
def terminal(
    directory: Path, words: list[str], then: str = ":", columns: int = 100, rows: int = 30
) -> Iterator[Terminal]:
    """One that ends with the block; its socket is in `directory`."""
    one = Terminal(directory / "tmux", words, then, columns, rows)
    try:
        yield one
    finally:
        one.close()


def _colours(words: str) -> list[tuple[int, int, int]]:
    return [(red, green, blue) for red, green, blue in map(bytes.fromhex, words.split())]


def page_of(shown: str, columns: int) -> str:
    """A page that looks like this text with its colours."""
    console = Console(
        record=True,
        file=io.StringIO(),
        width=columns,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    console.print(Text.from_ansi(shown.rstrip("\n")), soft_wrap=True, end="")
    theme = TerminalTheme(
        *_colours(_BACKGROUND), *_colours(_FOREGROUND), _colours(_NORMAL), _colours(_BRIGHT)
    )
    return console.export_html(theme=theme, code_format=_PAGE)


def main(arguments: list[str]) -> None:
    """Keeps a picture."""
    parser = argparse.ArgumentParser(prog="python -m tests.terminal", description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--columns", type=int, default=110)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=3, help="after the command's start")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, browser() as tab:
        with terminal(Path(directory), args.command, columns=args.columns, rows=args.rows) as screen:
            time.sleep(args.seconds)
            shown = screen.text("-e")
        page = Path(directory, "page.html")
        page.write_text(page_of(shown, args.columns), encoding="utf-8")
        tab.show(page, 1440, "dark")
        box = tab.evaluate(
            "(({width, height}) => [width, height])(document.querySelector('pre').getBoundingClientRect())"
        )
        picture = Image.open(io.BytesIO(tab.picture("pre"))).convert("RGB").crop((0, 0, *map(math.ceil, box)))
        picture.quantize(256, dither=Image.Dither.NONE).save(args.out, optimize=True)
    print(f"{args.out}: {len(shown.splitlines())} lines of {args.command}")


if __name__ == "__main__":
    main(sys.argv[1:])
