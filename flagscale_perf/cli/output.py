"""Puts out what a command has made: to the terminal, or to the file that -o names."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import shutil
import sys
from argparse import Namespace, _ActionsContainer
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.cli.base import local_path
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import replace_file
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
        print(f"page   {printable(_from_here(str(page)))}")
    which = "" if session is None else f" --session {shlex.quote(session)}"
    what = printable(shlex.quote(_from_here(str(run))))
    print(f"next   {_program()} report {what}{which} --full  # all figures")


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


def put(content: str | bytes, path: Path | None) -> None:
    """Writes it to stdout, or to the whole file, and says on stderr what was written. Raises PerfError."""
    if path is None or path == STDOUT:
        if isinstance(content, str):
            sys.stdout.write(content)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
        return
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_special(path):  # such as /dev/null, which must not be replaced by a file
            path.write_bytes(data)
        else:
            replace_file(path, data)
    except OSError as error:
        raise _unwritten(path, error) from None
    print(f"wrote {path} ({_size(len(data))})", file=sys.stderr)


def put_report(report: Report, chosen: str, path: Path | None) -> None:
    """`put` of the report in a format, which is a module of `flagscale_perf.report`. Raises PerfError."""
    form = importlib.import_module(f"flagscale_perf.report.{chosen}")
    if chosen == "csv":
        _put_lines(form.lines(report), path)
    else:
        put(form.render(report), path)


def _put_lines(lines: Iterable[str], path: Path | None) -> None:
    if path is None or path == STDOUT:
        sys.stdout.writelines(lines)
        return
    try:
        size_bytes = write_lines(lines, path)
    except OSError as error:
        raise _unwritten(path, error) from None
    print(f"wrote {path} ({_size(size_bytes)})", file=sys.stderr)


def write_lines(lines: Iterable[str], path: Path) -> int:
    """Writes a whole file, which may be too long for memory. Returns its size in bytes. Raises OSError."""
    temporary = path if _is_special(path) else path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(lines)
            size_bytes = file.tell() if file.seekable() else 0
        if temporary != path:
            temporary.replace(path)
    finally:
        if temporary != path:
            with contextlib.suppress(OSError):  # it is in its place, or never came to be
                temporary.unlink()
    return size_bytes


def _unwritten(path: Path, error: OSError) -> PerfError:
    return PerfError(f"-o {path}: cannot be written ({error.strerror or error}); name another file")


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


def write_all(directory: Path, contents: Mapping[str, str | bytes]) -> None:
    """Writes each file as a whole. Raises PerfError."""
    for name, content in contents.items():
        path = directory / name
        try:
            replace_file(path, content.encode() if isinstance(content, str) else content)
        except OSError as error:
            why = error.strerror or error
            raise PerfError(f"{path}: cannot be written ({why}); give another --out") from None


def _named_by(path: Path | None, formats: Sequence[str]) -> str | None:
    suffix = "" if path is None else path.suffix.lower()
    return next((name for name in formats if suffix and suffix in SUFFIXES.get(name, ())), None)


def _is_special(path: Path) -> bool:  # a device or a pipe
    return path.exists() and not path.is_file() and not path.is_dir()


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"
