"""Checkers of the house rules (docs/house.md). Each takes a tree of files and returns its offences,
`file:line what`, in order.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "flagscale_perf"
ROOT = "__init__"  # the row of the package's own file
MAX_FILE_LINES, MAX_OTHER_FILE_LINES = 400, 440  # of the package; of tests and benchmarks
MAX_FUNCTION_LINES, MAX_PARAMETERS = 60, 5
MAX_UNTESTED = 40  # statements of a module without a file of unit tests
MAY_PRINT = {"cli", "report", "hosts", "launch", "launcher"}
MAY_SYNCHRONISE = {
    f"{PACKAGE}/{name}.py"
    for name in (
        "hosts/rehearsal",
        "device/roofs",
        "profile/standalone/run",
        "bench/bandwidth/rank",
        "bench/bandwidth/operations",
    )
}
MAY_OPEN_RUN_FILES = {
    f"{PACKAGE}/{name}.py"
    for name in (
        "spine/session",
        *(f"store/{name}" for name in ("progress", "run_file", "runs", "seal", "strangers")),
        *(f"analysis/{name}" for name in ("session", "follow", "found", "job", "machines")),
    )
}
RUN_FILE = "perf_records_"
SYNCHRONISING = re.compile(
    r".*\.(synchronize|item|barrier|all_(reduce|gather|to_all)\w*|reduce_scatter\w*|broadcast_object_list)"
    r"|(.*\.)?dist(ributed)?\.(broadcast|reduce|gather|scatter|send|recv)\w*"
)
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load"}
MACHINE_PATH = re.compile(r"(?<![\w.$}~])/(work|root|home|Users)/\w")
INDEX_ADDRESS = re.compile(
    r"https?://\S*(pypi|pythonhosted|/simple\b|/whl\b|npmjs|anaconda)|--(extra-)?index-url[ =]\S",
    re.IGNORECASE,
)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def _nodes(name: str, text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text, name)))


@dataclass(frozen=True)
class Source:
    """One Python file of a tree; `name` is its path below the tree's root."""

    name: str
    text: str

    @property
    def nodes(self) -> list[ast.AST]:
        return _nodes(self.name, self.text)

    @property
    def module(self) -> list[str]:
        """Dotted name, in parts; a package's `__init__` under the package's own name."""
        parts = list(Path(self.name).with_suffix("").parts)
        return parts[:-1] if parts[-1] == "__init__" else parts

    @property
    def room(self) -> str:
        """The part of the package below its root that the file belongs to; "" for the root itself."""
        return "".join(self.module[1:2])

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        return (node for node in self.nodes if isinstance(node, FUNCTION))

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Each call, with what is called as far as it is a dotted name: `torch.cuda.synchronize`; `.item` for
        `f().item`.
        """
        return ((node, _dotted(node.func)) for node in self.nodes if isinstance(node, ast.Call))


@dataclass(frozen=True)
class Rights:
    """What a room may import."""

    rooms: set[str]
    others: set[str]


def read_sources(root: Path, *names: str) -> list[Source]:
    """The Python files below `root`, those in `names` (files or directories) only if any is given."""
    prefixes = tuple(names) or ("",)
    return [
        Source(name, text)
        for name, text in read_texts(root)
        if name.endswith(".py") and name.startswith(prefixes)
    ]


def read_texts(root: Path) -> list[tuple[str, str]]:
    """Path below `root` and text of every text file that is not of a directory in `.gitignore`."""
    ignored = [line.rstrip("/") for line in (root / ".gitignore").read_text().splitlines()] + [".git"]
    found = []
    for directory, below, files in os.walk(root):
        below[:] = [name for name in below if not any(Path(name).match(pattern) for pattern in ignored)]
        for path in (Path(directory, name) for name in files if name != ".git"):  # a file in a worktree
            try:
                found.append((str(path.relative_to(root)), path.read_text(encoding="utf-8")))
            except UnicodeDecodeError:  # a picture
                continue
    return sorted(found)


def read_house(page: str) -> dict[str, Rights]:
    """The table of docs/house.md that has four columns: room -> what it may import."""
    rows = [
        [set(re.findall(r"`([\w.]+)`", cell)) or cell.strip() for cell in line.split("|")[1:-1]]
        for line in page.splitlines()
        if line.count("|") == 5
    ]
    every = {next(iter(row[0])) for row in rows if isinstance(row[0], set)}
    return {
        next(iter(row[0])): Rights(_rooms(row[1], every), set(row[2]))
        for row in rows
        if isinstance(row[0], set)
    }


def _rooms(cell: set[str] | str, every: set[str]) -> set[str]:
    return every - {"__main__"} if cell == "everything" else set(cell)


def check_imports(sources: list[Source], house: dict[str, Rights]) -> list[str]:
    """Imports, wherever they stand, that the table does not allow."""
    modules = {".".join(source.module) for source in sources}
    offences = []
    for source in sources:
        for line, target in _imported(source, modules):
            reason = _refusal(_room_in(house, source.module[1:]), target, house)
            if reason:
                offences.append(f"{source.name}:{line} {reason}")
    return offences


def check_two_way(house: dict[str, Rights]) -> list[str]:
    """Pairs of rooms that may import each other, directly or by way of others."""
    reached = {room: set(rights.rooms) for room, rights in house.items()}
    for middle in house:
        for rooms in reached.values():
            if middle in rooms:
                rooms |= reached[middle]
    return [
        f"{room} and {other}"
        for room in house
        for other in sorted(reached[room])
        if room < other and room in reached[other]
    ]


def _room_in(house: dict[str, Rights], path: list[str]) -> str:
    """The innermost row that holds `path`, the parts of a dotted name below the package:
    `training.ranks` before `training`.
    """
    rows = (".".join(path[:length]) for length in range(len(path), 0, -1))
    return next((row for row in rows if row in house), "".join(path[:1]))


def _refusal(room: str, target: str, house: dict[str, Rights]) -> str | None:
    rights = house.get(room or ROOT, Rights(set(), set()) if room == "" else None)
    if rights is None:
        return f"the room {room} has no row in the table"
    top, *below = target.split(".")
    wanted = _room_in(house, below)
    if top == PACKAGE:
        return None if wanted in rights.rooms | {room, ""} else f"{room} may not import {wanted}"
    return None if top in rights.others | set(sys.stdlib_module_names) else f"{room} may not import {top}"


def _imported(source: Source, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported, by statement or by a literal name."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(source, node)
            for name in (f"{base}.{alias.name}" for alias in node.names):
                yield node.lineno, name if name in modules else base
        elif isinstance(node, ast.Call) and _dotted(node.func).split(".")[-1] in (
            "import_module",
            "__import__",
        ):
            yield from (
                (node.lineno, arg.value)
                for arg in node.args[:1]
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )


def _base_of(source: Source, node: ast.ImportFrom) -> str:
    """The dotted name that `from X import ...` names, relative ones resolved."""
    package = source.module if source.name.endswith("__init__.py") else source.module[:-1]
    above = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*above, *filter(None, [node.module])])


def check_sizes(sources: list[Source]) -> list[str]:
    """Files, functions and parameter lists that are too long."""
    offences = []
    for source in sources:
        lines = len(source.text.splitlines())
        if lines > (MAX_FILE_LINES if source.name.startswith(f"{PACKAGE}/") else MAX_OTHER_FILE_LINES):
            offences.append(f"{source.name}:1 {lines} lines")
        for function in source.functions():
            length = (function.end_lineno or 0) - function.lineno + 1
            if length > MAX_FUNCTION_LINES:
                offences.append(f"{source.name}:{function.lineno} {function.name} has {length} lines")
    return offences


def check_parameters(sources: list[Source]) -> list[str]:
    """Functions with too many parameters, `self` and `cls` not counted."""
    offences = []
    for source in sources:
        for function in source.functions():
            given = function.args
            names = [
                a.arg
                for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)
                if a.arg not in ("self", "cls")
            ]
            if len(names) > MAX_PARAMETERS:
                offences.append(
                    f"{source.name}:{function.lineno} {function.name} takes {len(names)} parameters"
                )
    return offences


def check_run_files(sources: list[Source]) -> list[str]:
    """Modules outside the reading room that open run files or know their names; texts for a user may."""
    offences = []
    for source in sources:
        if source.name in MAY_OPEN_RUN_FILES:
            continue
        for node in source.nodes:
            names = [each.name for each in node.names] if isinstance(node, ast.ImportFrom) else []
            names += [getattr(node, "id", ""), getattr(node, "attr", "")]
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if RUN_FILE in text and " " not in text:
                offences.append(f"{source.name}:{getattr(node, 'lineno', 0)} {RUN_FILE}")
            if "RunFile" in names:
                offences.append(f"{source.name}:{getattr(node, 'lineno', 0)} RunFile")
    return offences


def check_unsafe(sources: list[Source]) -> list[str]:
    """Code that runs text: eval, pickle, a shell."""
    offences = []
    for source in sources:
        imported = [
            (line, f"import {name}")
            for line, name in _imported(source, set())
            if name.split(".")[0] in UNSAFE_MODULES
        ]
        called = [(call.lineno, name) for call, name in source.calls() if name in UNSAFE_CALLS]
        shells = [
            (call.lineno, "shell=True")
            for call, _ in source.calls()
            if any(_is_shell(k) for k in call.keywords)
        ]
        offences += [f"{source.name}:{line} {what}" for line, what in sorted(imported + called + shells)]
    return offences


def _is_shell(keyword: ast.keyword) -> bool:
    return keyword.arg == "shell" and not (
        isinstance(keyword.value, ast.Constant) and not keyword.value.value
    )


def check_prints(sources: list[Source]) -> list[str]:
    """Prints to stdout outside the rooms that talk to people; `print(..., file=...)` goes where it is
    told.
    """
    found = (
        (source, call)
        for source in sources
        if source.room not in MAY_PRINT
        for call, name in source.calls()
        if name == "print"
    )
    return [
        f"{source.name}:{call.lineno} print"
        for source, call in found
        if not any(k.arg == "file" for k in call.keywords)
    ]


def check_synchronising(sources: list[Source]) -> list[str]:
    """Calls that wait for the device or for another rank."""
    found = (
        (source, call, name)
        for source in sources
        if source.name not in MAY_SYNCHRONISE
        for call, name in source.calls()
    )
    return [
        f"{source.name}:{call.lineno} {name}" for source, call, name in found if SYNCHRONISING.fullmatch(name)
    ]


def check_addresses(texts: list[tuple[str, str]]) -> list[str]:
    """Paths of somebody's machine and addresses of package indexes, in any text file."""
    rules = (MACHINE_PATH, INDEX_ADDRESS)
    found = (
        (name, n, rule.search(line))
        for name, text in texts
        for n, line in enumerate(text.splitlines(), 1)
        for rule in rules
    )
    return [f"{name}:{n} {match[0]}" for name, n, match in found if match]


def check_mirror(names: list[str]) -> list[str]:
    """Unit tests that are about no module: tests/unit/ROOM/test_MODULE[_TOPIC].py wants
    flagscale_perf/ROOM/MODULE.py.
    """
    modules = {
        Path(name).relative_to(PACKAGE).with_suffix("") for name in names if name.startswith(f"{PACKAGE}/")
    }
    offences = []
    for test in (Path(name) for name in names if re.fullmatch(r"tests/unit/(.+/)?test_\w+\.py", name)):
        room, about = test.parent.relative_to("tests/unit"), test.stem.removeprefix("test_")
        if not any(m.parent == room and f"{about}_".startswith(f"{m.stem.strip('_')}_") for m in modules):
            offences.append(f"{test}:1 no module {PACKAGE / room / about}.py")
    return offences


def check_tested(sources: list[Source], names: list[str], exceptions: Container[str]) -> list[str]:
    """Modules of more than MAX_UNTESTED statements, not in `exceptions`, that have no file of unit tests."""
    tests = [name.removeprefix("tests/unit/") for name in names if name.startswith("tests/unit/")]
    offences = []
    for source in sources:
        path = Path(source.name).relative_to(PACKAGE)
        about = str(path.with_name(f"test_{path.stem}"))
        is_tested = any(test.startswith((f"{about}.py", f"{about}_")) for test in tests)
        statements = sum(isinstance(node, ast.stmt) for node in source.nodes)
        if statements > MAX_UNTESTED and not is_tested and str(path) not in exceptions:
            offences.append(f"{source.name}:1 has {statements} statements and no tests/unit/{about}.py")
    return offences


def check_test_packages(names: list[str]) -> list[str]:
    """Directories of tests without `__init__.py`: two test files of one name would collide."""
    homes = {Path(name).parent for name in names if re.fullmatch(r"tests/(.+/)?test_\w+\.py", name)}
    return [
        f"{home}/__init__.py:1 is missing" for home in sorted(homes) if f"{home}/__init__.py" not in names
    ]


def check_makefile(text: str) -> list[str]:
    """Targets without a help line. Files that are made have none and are not asked for it."""
    targets = [
        (n, line) for n, line in enumerate(text.splitlines(), 1) if re.match(r"[A-Za-z][\w-]*:(?!=)", line)
    ]
    return [
        f"Makefile:{n} {line.split(':')[0]} has no help"
        for n, line in targets
        if not re.search(r" ## \w", line)
    ]


def check_frozen(sources: list[Source]) -> list[str]:
    """Dataclasses that can be changed after they are made."""
    offences = []
    for source in sources:
        for node in (n for n in source.nodes if isinstance(n, ast.ClassDef)):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                frozen = isinstance(decorator, ast.Call) and any(
                    k.arg == "frozen" for k in decorator.keywords
                )
                if _dotted(called).split(".")[-1] == "dataclass" and not frozen:
                    offences.append(f"{source.name}:{node.lineno} {node.name} is not frozen")
    return offences


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""
