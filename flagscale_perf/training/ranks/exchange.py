"""Files by which the nodes of a job report to the node that gathers it, in a directory that all nodes see.

    .ranks_<key>/beacon.json    of the gathering process: a random token, and what it requests of all
                                processes. A file without this token is of another start of the job
    .ranks_<key>/node_<N>.json  of a node's collector; N is the member that started it. One line about the
                                node, then one for each item

Each file has one writer and is replaced as a whole. Files are read with
bounds on size and time, and believed only as far as they parse.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.files import NotRegularError, make_directory, open_regular, replace_file
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.peers.node import Gone
from flagscale_perf.training.ranks.blocks import Block, RankIdentity
from flagscale_perf.training.ranks.identity import content_of, identity_of
from flagscale_perf.training.ranks.kind import RankItem, decode_item, name_of

BEACON = "beacon.json"
MAX_NODE_BYTES = 4 << 20
MAX_BEACON_BYTES = 1024
MAX_ENTRIES = 1 << 20  # of any list in a file
ROUND_S = 1.0  # a file is looked at no more often
TOUCH_S = 3600.0
ABANDONED_S = 86_400.0  # a directory untouched for so long is of a job that was killed
NAME_PATTERN = r"[A-Za-z0-9_-]{1,64}"
_NAME = re.compile(NAME_PATTERN)
_NODE = re.compile(rf"node_{NAME_PATTERN}\.json")
_OURS = re.compile(
    rf"beacon\.json|\.beacon\.json\.tmp|node_{NAME_PATTERN}\.json|\.node_{NAME_PATTERN}\.json\.tmp"
)


@dataclass(frozen=True)
class NodeReport:
    """A node's file.

    Attributes:
        token: of the beacon that the collector has seen.
        owners: of all the node's processes found so far.
        gone: those that have died.
        notes: (name, what there is to report about it), of the whole run.
        first_item: number of the first item here, counted over the collector's whole run; earlier ones are
            no longer in the file.
        items: as lines of JSON.
        collector: which one this is: a killed one has a successor, which counts anew.
    """

    token: str
    owners: list[RankIdentity]
    gone: list[Gone]
    notes: list[tuple[str, str]]
    first_item: int
    items: list[bytes] = field(default_factory=list)
    collector: str = ""

    def encode(self) -> bytes:
        """The file's content: a line about the node, then one for each item."""
        about = {
            "token": self.token,
            "owners": [content_of(owner) for owner in self.owners],
            "gone": self.gone,
            "notes": self.notes,
            "first_item": self.first_item,
            "collector": self.collector,
        }
        return b"\n".join([dump(about).encode(), *self.items, b""])

    @classmethod
    def decode(cls, content: bytes) -> NodeReport:
        """Raises ValueError for damaged content."""
        first, *items = content.split(b"\n")
        about = _parse_object(first)
        try:
            return cls(
                token=_text(about["token"]),
                owners=[identity_of(owner) for owner in _list(about["owners"])],
                gone=[
                    Gone(_name(name), _number(position), _text(why))
                    for name, position, why in _list(about["gone"])
                ],
                notes=[(_name(name), _text(text)) for name, text in _list(about["notes"])],
                first_item=_number(about["first_item"]),
                items=items[:-1],
                collector=_text(about["collector"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no report of a node: {error}") from None


def directory_of(run_directory: Path, key: str) -> Path:
    """The directory in which the nodes of a job exchange their files."""
    return run_directory / f".ranks_{key}"


class Beacon(NamedTuple):
    """The gathering process's message to all collectors.

    Attributes:
        token: of this start of the job.
        request: see `Fold.request`; None if there is none.
    """

    token: str
    request: Any


class Outbox:
    """A collector's end: one file."""

    def __init__(self, directory: Path, name: str) -> None:
        """`directory`: see `directory_of`; `name` of the member that has started the collector."""
        self._path = directory
        self._name = f"node_{name}.json"

    def beacon(self) -> Beacon | None:
        """None while there is none."""
        try:
            with _opened(self._path) as directory:
                return _beacon_in(directory)
        except (OSError, ValueError):
            return None

    def write(self, content: bytes) -> None:
        """Replaces the file. Raises OSError."""
        with _opened(self._path) as directory:
            _replace(directory, self._name, content)

    def leave(self) -> None:
        """Removes the file if the gathering process has already removed the beacon."""
        if self.beacon() is None:
            with contextlib.suppress(OSError), _opened(self._path) as directory:
                _unlink(directory, [self._name])
                self._path.rmdir()


@dataclass
class _Progress:
    signature: tuple[int, ...] = ()
    collector: str = ""
    next_item: int = 0
    has_complained: bool = False
    has_lost: bool = False


@dataclass
class Received:
    """What one look into the files has found.

    Attributes:
        reports: changed ones, without their items.
        items: those not seen before.
        blocks: the lines of those that are blocks, as each node sent them, with its host name.
        complaints: what was wrong with a file, once for each.
    """

    reports: list[NodeReport] = field(default_factory=list)
    items: list[RankItem] = field(default_factory=list)
    blocks: list[tuple[str, list[bytes]]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Inbox:
    """The gathering process's end: the beacon, and the files of all nodes."""

    def __init__(self, directory: Path, max_files: int) -> None:
        """`directory`: see `directory_of`. Raises OSError where it cannot be made."""
        self._path = directory
        self._max_files = max_files
        self._token = secrets.token_hex(16)
        self._request: Any = None
        self._progress: dict[str, _Progress] = {}
        self._round: deque[str] = deque()  # files still to be looked at
        self._round_ns = self._touched_ns = monotonic_ns()
        prune(directory)
        self._make()

    def _make(self) -> None:
        make_directory(self._path)
        with _opened(self._path) as fd:
            _replace(fd, BEACON, dump(Beacon(self._token, self._request)._asdict()).encode())

    def request(self, content: Any) -> None:
        """Lets all collectors know; short JSON types. Raises OSError, and is then in the next beacon."""
        self._request = content
        self._make()

    def look(self, budget_ns: int) -> Received:
        """Reads changed files for so long, one at least, in turn over several calls. Raises OSError.

        The directory and the beacon are made again if they have been removed.
        """
        received = Received()
        now_ns = monotonic_ns()
        deadline_ns = now_ns + budget_ns
        if not self._has_beacon():
            self._make()
        with _opened(self._path) as directory:
            if not self._round and now_ns >= self._round_ns:
                self._begin_round(directory, now_ns)
            while self._round:
                self._read(directory, self._round.popleft(), received)
                if monotonic_ns() >= deadline_ns:
                    break
        return received

    def close(self, budget_ns: int) -> Received:
        """A last look at all files; then the directory is removed. Raises OSError."""
        self._round, self._round_ns = deque(), 0
        received = self.look(budget_ns)
        # What cannot be removed now is removed by its age in a later run.
        with contextlib.suppress(OSError, ValueError), _opened(self._path) as directory:
            if _beacon_in(directory).token == self._token:  # it may be a successor's by now
                _unlink(directory, [BEACON, *filter(_OURS.fullmatch, os.listdir(directory))])
                self._path.rmdir()  # fails while a collector writes, which removes the directory then
        return received

    def _has_beacon(self) -> bool:
        """Whether anybody's beacon is there: a successor's must not be replaced."""
        try:
            with _opened(self._path) as directory:
                return bool(_beacon_in(directory).token)
        except (OSError, ValueError):
            return False

    def _begin_round(self, directory: int, now_ns: int) -> None:
        self._round_ns = now_ns + int(ROUND_S * NS_PER_S)
        self._round.extend(sorted(filter(_NODE.fullmatch, os.listdir(directory)))[: self._max_files])
        if now_ns - self._touched_ns >= TOUCH_S * NS_PER_S:
            self._touched_ns = now_ns
            os.utime(BEACON, dir_fd=directory)

    def _read(self, directory: int, name: str, received: Received) -> None:
        progress = self._progress.setdefault(name, _Progress())
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            signature = (found.st_ino, found.st_mtime_ns, found.st_size)
            if signature != progress.signature:
                progress.signature = signature
                content = _read(directory, name, MAX_NODE_BYTES)
                self._take(NodeReport.decode(content), progress, received)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            if not progress.has_complained:
                progress.has_complained = True
                received.complaints.append(f"{name}: {error}")

    def _take(self, report: NodeReport, progress: _Progress, received: Received) -> None:
        """Raises ValueError; what was good before the bad part is kept."""
        if report.token != self._token:
            return
        if report.collector != progress.collector:
            progress.collector, progress.next_item = report.collector, 0
        known = max(0, progress.next_item - report.first_item)
        if report.first_item > progress.next_item and not progress.has_lost:
            progress.has_lost = True
            lost = report.first_item - progress.next_item
            received.complaints.append(
                f"{lost} blocks were gone before they were read, and perhaps more later"
            )
        fresh, report.items[:] = report.items[known:], []
        progress.next_item = max(progress.next_item, report.first_item + known + len(fresh))
        received.reports.append(report)
        names = {name_of(owner) for owner in report.owners}
        blocks = list[bytes]()
        received.blocks.append((report.owners[0].hostname if report.owners else "", blocks))
        for line, content in zip(fresh, _parse_all(fresh), strict=True):
            item = decode_item(content)
            name = name_of(item)
            if name not in names:
                raise ValueError(f"a block of rank {name}, which is none of the node's")
            received.items.append(item)
            if isinstance(item, Block):
                blocks.append(line)


def prune(keep: Path) -> None:
    """Removes the directories that killed jobs have left beside this one, by age, and only our files in them.

    Raises OSError if the run directory cannot be read.
    """
    for name in os.listdir(keep.parent):
        if re.fullmatch(r"\.ranks_[0-9a-f]{16}", name) and name != keep.name:
            with contextlib.suppress(OSError), _opened(keep.parent / name) as fd:
                files = [file for file in os.listdir(fd) if _OURS.fullmatch(file)]
                stats = [os.fstat(fd), *(os.stat(file, dir_fd=fd, follow_symlinks=False) for file in files)]
                if time.time() - max(found.st_mtime for found in stats) > ABANDONED_S:
                    _unlink(fd, files)
                    (keep.parent / name).rmdir()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The directory itself, not what a link of that name leads to. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _replace(directory: int, name: str, content: bytes) -> None:
    """Replaces a file, without fsync: nothing that a crash loses here is needed after it. Raises OSError."""
    replace_file(Path(name), content, directory=directory, is_durable=False)


def _read(directory: int, name: str, limit: int) -> bytes:
    try:
        fd = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, directory=directory)
    except NotRegularError:
        raise ValueError("no regular file") from None
    with open(fd, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"longer than {limit} bytes")
    return content


def _unlink(directory: int, names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _beacon_in(directory: int) -> Beacon:
    content = _parse_object(_read(directory, BEACON, MAX_BEACON_BYTES))
    return Beacon(_text(content.get("token")), content.get("request"))


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parse_all(lines: Sequence[bytes]) -> Iterable[Any]:
    """The content of each line. They are parsed all at once, which takes a third of the time; where that
    fails one by one, so that those before the bad one are not lost.
    """
    with contextlib.suppress(ValueError):
        found: list[Any] = _parse(b"[%b]" % b",".join(lines))
        if len(found) == len(lines):
            return found
    return map(_parse, lines)


def _parse_object(line: bytes) -> dict[str, Any]:
    content = _parse(line)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_BEACON_BYTES:
        raise ValueError("no text where one belongs")
    return value


def _name(value: Any) -> str:
    if not _NAME.fullmatch(_text(value)):
        raise ValueError("no name where one belongs")
    return str(value)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ValueError("no number where one belongs")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list or len(value) > MAX_ENTRIES:
        raise ValueError("no list where one belongs")
    return value
