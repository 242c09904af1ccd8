"""A terminal (tmux's) in which a command runs, and a page that looks like it."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

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
