"""Puts out what a command has made: to the terminal, or to the file that -o names."""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import sys
from argparse import Namespace, _ActionsContainer
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.cli.base import local_path
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import replace_file
from flagscale_perf.spine.language import say
from flagscale_perf.spine.units import printable

# What a file of each format is called; of a format that is not here: anything.
SUFFIXES = {
    "text": (".txt", ".log"),
    "markdown": (".md", ".markdown"),
    "html": (".html", ".htm"),
    "json": (".json",),
    "csv": (".csv",),
    "png": (".png",),
}
NOT_FOR_TERMINALS = {"html": "a page of 2 MB and more", "png": "a picture"}
BINARY = ("png",)  # formats that need -o whatever stdout is
STDOUT = Path("-")
_PROGRAM = "flagscale-perf"

Content: TypeAlias = str | bytes | Iterable[str]  # lines: of what may be too long for memory


def add_output(parser: _ActionsContainer, formats: Sequence[str], about: str) -> None:
    """Adds the options that choose a format and a file."""
    add = parser.add_argument
    add("--format", choices=formats, help=about)
    add(
        "-o",
        "--output",
        type=local_path,
        metavar="FILE",
        help="write it there, in the format that its name ends in unless --format says another; - for stdout",
    )


def format_of(args: Namespace, formats: Sequence[str], name: str = "report") -> str:
    """The format asked for, one of these. Raises PerfError for a file that is named like another one, for a
    place where no file can be, and for what a terminal cannot show; `name` is of a file to propose.
    """
    path: Path | None = None if args.output == STDOUT else args.output
    chosen: str = args.format or _named_by(path, formats) or formats[0]
    if path is not None:
        if not _is_special(path):
            _check_name(path, chosen, (args.format,) if args.format else formats)
            check_place(path)
    elif args.output is None and (chosen in BINARY or (chosen in NOT_FOR_TERMINALS and sys.stdout.isatty())):
        what, suffix = NOT_FOR_TERMINALS[chosen], SUFFIXES[chosen][0]
        pipe = ", or -o - for a pipe" if chosen in BINARY else ""
        raise PerfError(
            f"--format {chosen} makes {what}, which a terminal cannot show; add -o {name}{suffix}{pipe}"
        )
    return chosen


def _check_name(path: Path, chosen: str, formats: Sequence[str]) -> None:
    known = SUFFIXES.get(chosen)
    if known is None or not path.suffix or path.suffix.lower() in known:
        return
    fitting = [str(path.with_suffix(SUFFIXES[each][0])) for each in formats if each in SUFFIXES]
    kinds = ", ".join(formats)
    raise PerfError(f"-o {path}: {path.suffix} is not an ending of {kinds}; write {', '.join(fitting)}")


def check_place(path: Path) -> None:
    """Raises PerfError for a directory, and for a file in a directory that is not there."""
    if path.is_dir():
        raise PerfError(f"-o {path}: is a directory; name a file in it")
    if not path.parent.is_dir():
        raise PerfError(
            f"-o {path}: there is no directory {str(path.parent)!r}; make it, or name another one"
        )


def put_next(run: Path, page: Path | None, session: str | None = None) -> None:
    """Prints where the page is, if there is one, and the command that shows the whole report."""
    if page is not None:
        print(say("page   {0}", printable(_from_here(str(page)))))
    which = "" if session is None else f" --session {shlex.quote(session)}"
    what = printable(shlex.quote(_from_here(str(run))))
    print(say("next   {0}  # all figures", f"{_program()} report {what}{which} --full"))


def _program() -> str:
    """`flagscale-perf` as it can be typed here: by its name only where that is the one of this Python."""
    here = Path(sys.executable).with_name(_PROGRAM)
    if not here.exists():
        return f"{shlex.quote(_from_here(sys.executable))} -m flagscale_perf"
    found = shutil.which(_PROGRAM)
    return _PROGRAM if found is not None and here.samefile(found) else shlex.quote(_from_here(str(here)))


def _from_here(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def put(content: Content, path: Path | None) -> None:
    """Writes it to stdout, or to the whole file, and says on stderr what was written. Raises PerfError."""
    if path is None or path == STDOUT:
        if isinstance(content, bytes):
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
        else:
            sys.stdout.writelines([content] if isinstance(content, str) else content)
        return
    try:
        size_bytes = write(content, path)
    except OSError as error:
        raise PerfError(
            f"-o {path}: cannot be written ({error.strerror or error}); name another file"
        ) from None
    print(f"wrote {path} ({size_of(size_bytes)})", file=sys.stderr)


def write(content: Content | Iterable[bytes], path: Path) -> int:
    """Writes the whole file, or into what is none, such as /dev/null, and must not be replaced by one.
    Returns how many bytes. Raises OSError.
    """
    written = 0

    def pieces() -> Iterator[bytes]:
        nonlocal written
        for piece in [content] if isinstance(content, str | bytes) else content:
            data = piece.encode() if isinstance(piece, str) else piece
            written += len(data)
            yield data

    if _is_special(path):
        with path.open("wb") as file:
            file.writelines(pieces())
    else:
        replace_file(path, pieces())
    return written


def put_report(report: Report, chosen: str, path: Path | None) -> None:
    """`put` of the report in a format, which is a module of `flagscale_perf.report`. Raises PerfError."""
    form = importlib.import_module(f"flagscale_perf.report.{chosen}")
    put(form.lines(report) if chosen == "csv" else form.render(report), path)


def page_of(whole: Report, name: str) -> dict[str, str]:
    """The report as a page of that name; without plotly none, and stderr says so."""
    from flagscale_perf.report import html

    try:
        return {name: html.render(whole)}
    except PerfError as error:
        print(error, file=sys.stderr)
        return {}


def pictures_of(pictures: Mapping[str, Report]) -> dict[str, bytes]:
    """The PNGs of those pictures that can be drawn; none without matplotlib, and stderr says so."""
    try:
        from flagscale_perf.report import png

        return {name: png.render(picture) for name, picture in pictures.items()}
    except PerfError as error:
        print(error, file=sys.stderr)
        return {}


def write_all(directory: Path, contents: Mapping[str, Content]) -> None:
    """Writes each file as a whole. Raises PerfError."""
    for name, content in contents.items():
        path = directory / name
        try:
            write(content, path)
        except OSError as error:
            why = error.strerror or error
            raise PerfError(f"{path}: cannot be written ({why}); give another --out") from None


def _named_by(path: Path | None, formats: Sequence[str]) -> str | None:
    suffix = "" if path is None else path.suffix.lower()
    return next((name for name in formats if suffix and suffix in SUFFIXES.get(name, ())), None)


def _is_special(path: Path) -> bool:  # a device or a pipe
    return path.exists() and not path.is_file() and not path.is_dir()


def size_of(size_bytes: float) -> str:
    """In megabytes, or kilobytes where it is less than one."""
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"
