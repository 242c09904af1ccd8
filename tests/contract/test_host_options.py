"""Every option of every host is counted in FLOPs, has no influence on them, or is refused.

`host_options.toml` has the first two lists, `flops/sources.py` the third. What a host takes from a
configuration's dataclass is an option, too. Read are FlagScale 0.8.0, the trees of `tests/hosts`, and the
names in `megatron_branches.toml`, of branches that are no package.
"""

from __future__ import annotations

import ast
import re
import tarfile
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

from flagscale_perf.flops.files import refuse_unknown
from flagscale_perf.flops.sources import UNCOUNTED
from tests.hosts.trees import MISSING, source_trees
from tests.processes import flagscale as fs

REPO = Path(__file__).parents[2]
LISTS = tomllib.loads((REPO / "flagscale_perf/flops/host_options.toml").read_text(encoding="utf-8"))
COUNTED = set(LISTS["counted"].split())
IDLE = {name for names in LISTS["no_influence"].values() for name in names.split()}
IDLE_GROUPS = set(LISTS["groups_without_influence"].split())
ARGUMENTS = re.compile(r"(^|/)(post_)?train(ing)?/arguments\w*\.py$")
DATACLASSES = re.compile(r"(^|/)megatron/.*\.py$")


class Option(NamedTuple):
    """An option by the attribute it sets, and the function or the dataclass that it comes from."""

    name: str
    group: str


class Class(NamedTuple):
    bases: list[str]
    fields: set[str]


def sources(place: Path) -> Iterator[tuple[str, str]]:
    """Path and content of the Python files of a folder or an archive, as far as they can matter."""
    if place.is_dir():
        for path in sorted(place.rglob("*.py")):
            name = path.relative_to(place).as_posix()
            if ARGUMENTS.search(name) or DATACLASSES.search(name):
                yield name, path.read_text(encoding="utf-8")
        return
    with tarfile.open(place) as archive:
        for member in archive:
            if ARGUMENTS.search(member.name) or DATACLASSES.search(member.name):
                content = archive.extractfile(member)
                if content is not None:
                    yield member.name, content.read().decode()


def classes_of(tree: ast.Module) -> dict[str, Class]:
    """Every class with the fields that it annotates."""
    made = {}
    for each in ast.walk(tree):
        if isinstance(each, ast.ClassDef):
            rows = [row.target for row in each.body if isinstance(row, ast.AnnAssign)]
            fields = {row.id for row in rows if isinstance(row, ast.Name)}
            made[each.name] = Class([ast.unparse(base).rpartition(".")[2] for base in each.bases], fields)
    return made


def read(place: Path) -> tuple[list[ast.Module], dict[str, Class]]:
    """The modules with a host's options, and the dataclasses that these may name."""
    modules: list[ast.Module] = []
    classes: dict[str, Class] = {}
    for name, text in sources(place):
        if ARGUMENTS.search(name):
            modules.append(ast.parse(text))
        elif "@dataclass" in text:
            for each, found in classes_of(ast.parse(text)).items():
                fields = classes[each].fields if each in classes else set()
                classes[each] = Class(found.bases, fields | found.fields)
    return modules, classes


def options_of(module: ast.Module, classes: dict[str, Class]) -> set[Option]:
    """All that the module's functions add to a parser."""
    found: set[Option] = set()
    for function in module.body:
        if isinstance(function, ast.FunctionDef):
            lists = {
                ast.unparse(row.targets[0]): row.value
                for row in ast.walk(function)
                if isinstance(row, ast.Assign)
            }
            for call in ast.walk(function):
                called = ast.unparse(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
                if called == "add_argument":
                    found.add(Option(attribute(call), function.name))
                elif called == "ArgumentGroupFactory":
                    name = ast.unparse(call.args[0])
                    found |= {Option(each, name) for each in fields_of(name, classes) - left_out(call, lists)}
    return found


def attribute(call: ast.Call) -> str:
    """What `add_argument` stores the value under."""
    given = [each.value.value for each in call.keywords if each.arg == "dest"]
    names = given or [each.value for each in call.args if isinstance(each, ast.Constant)]
    long = [name for name in names if given or name.startswith("--")] or names
    return long[0].lstrip("-").replace("-", "_")


def fields_of(name: str, classes: dict[str, Class]) -> set[str]:
    """Those of the dataclass and its bases."""
    found = classes[name]
    inherited = [fields_of(base, classes) for base in found.bases if base in classes]
    return found.fields.union(*inherited)


def left_out(call: ast.Call, lists: dict[str, ast.expr]) -> set[str]:
    """What is excluded: a list there, or one that a name was given to."""
    given = next((each.value for each in call.keywords if each.arg == "exclude"), None)
    rows = given if isinstance(given, ast.List) or given is None else lists[ast.unparse(given)]
    return set() if rows is None else set(ast.literal_eval(rows))


def unknown(options: set[Option]) -> list[str]:
    """Those in none of the three lists."""
    return sorted(
        f"{option.group}: {option.name}"
        for option in options
        if option.group not in IDLE_GROUPS
        and option.name not in COUNTED | set(UNCOUNTED)
        and option.name not in IDLE
    )


def held(places: list[Path]) -> set[Option]:
    trees = [read(place) for place in places]
    classes: dict[str, Class] = {}
    for _, found in trees:  # FlagScale's options name dataclasses of the Megatron beside it
        for name, each in found.items():
            fields = classes[name].fields if name in classes else set()
            classes[name] = Class(each.bases, each.fields | fields)
    return {option for modules, _ in trees for module in modules for option in options_of(module, classes)}


def test_every_option_of_the_installed_host_is_in_a_list() -> None:
    options = held([fs.root() / "flagscale", fs.root() / "third_party" / "Megatron-LM"])
    assert {"hidden_size", "recompute_granularity_per_stage_micro_batch"} <= {each.name for each in options}
    assert unknown(options) == []


def test_every_option_of_the_trees_is_in_a_list() -> None:
    if not source_trees():
        pytest.skip(MISSING)
    options = held(source_trees())
    assert {"hidden_size", "use_engram"} <= {each.name for each in options}
    assert unknown(options) == []


def of_branches() -> set[Option]:
    """Those of Megatron-LM's branches main and dev that no other host has."""
    groups = tomllib.loads(Path(__file__).with_name("megatron_branches.toml").read_text(encoding="utf-8"))
    return {Option(name, group) for group, names in groups.items() for name in names.split()}


def test_every_option_of_megatrons_branches_is_in_a_list() -> None:
    assert {"head_wise_attn_gate", "linear_attention_type"} <= {each.name for each in of_branches()}
    assert unknown(of_branches()) == []


def test_no_option_of_a_host_is_taken_for_an_unknown_size() -> None:
    options = held([fs.root() / "flagscale", fs.root() / "third_party" / "Megatron-LM", *source_trees()])
    for option in options | of_branches():
        if option.name not in UNCOUNTED:
            refuse_unknown(option.name, 7)


def test_no_option_is_in_two_lists() -> None:
    given = COUNTED | set(UNCOUNTED)
    assert COUNTED & set(UNCOUNTED) == set()
    assert given & IDLE == set()
    assert [
        name for name in given | IDLE if not name.isidentifier()
    ] == []  # a pattern hides what comes later


def test_what_is_called_counted_is_read() -> None:
    constants = {
        each.value.replace("{}", "*")
        for path in (REPO / "flagscale_perf").rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    built = {each for each in constants if re.fullmatch(r"\w+_\*_\w+", each)}
    read = {name for name in COUNTED if any(fnmatchcase(name, each) for each in built)} | constants
    assert COUNTED - read == set()


HOST = """
def _add_sizes(parser):
    hidden = ["depth"]
    group.add_argument("-w", "--window-width", type=int)
    group.add_argument("--no-gate", dest="gate")
    ArgumentGroupFactory(Config, exclude=hidden)

class Base:
    hyper_width: int

@dataclass
class Config(Base):
    depth: int = 1
    hidden_size: int = 2
"""


def test_a_new_option_is_seen_wherever_a_host_defines_it() -> None:
    module = ast.parse(HOST)
    assert unknown(options_of(module, classes_of(module))) == [
        "Config: hyper_width",
        "_add_sizes: gate",
        "_add_sizes: window_width",
    ]
