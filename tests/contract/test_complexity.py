"""No function takes more than 15 decisions, and no class that does something keeps more than 15 attributes.

ruff's count (at most 10) leaves out what an expression hides: `and`, `or`, comprehensions, `x if y else z`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract import house_rules as rules

REPO = Path(__file__).parents[2]
SOURCES = [
    *rules.read_sources(REPO, "flagscale_perf/", "examples/", "scripts/"),
    *rules.read_sources(REPO, "run.py"),
]
MOST = 15
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ONE_MORE = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
)
# These run in every step or operation that is measured, where each further call or object costs a microsecond
# or two (docs/operations.md); an operation is a record in the making.
HOT = {
    "flagscale_perf/perf_metrics.py StepMeter",
    "flagscale_perf/trace/running.py Operation",
    "flagscale_perf/trace/tracer.py _record",
}


def decisions(function: ast.AST) -> int:
    """The ways through a function that its own statements and expressions open, inner functions aside."""
    return 1 + sum(_opened(node) for node in _inside(function))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield child
            yield from _inside(child)


def _opened(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return isinstance(node, ONE_MORE)


def attributes(node: ast.ClassDef) -> set[str]:
    """The names that a class's methods set on `self`, and the fields that its body declares."""
    declared = {
        field.target.id
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    return declared | {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and _is_self(inner.value)
    }


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_data(node: ast.ClassDef) -> bool:
    """Records, named tuples, and dataclasses that don't change: their fields are a table's columns."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    is_tuple = any(ast.unparse(base) == "NamedTuple" for base in node.bases)
    return is_tuple or any(
        mark.startswith(("record", "records.record")) or "frozen=True" in mark for mark in marks
    )


def check(sources: list[rules.Source]) -> list[str]:
    found = []
    for source in sources:
        for node in source.nodes:
            if isinstance(node, FUNCTIONS) and decisions(node) > MOST:
                found.append(f"{source.name} {node.name}: {decisions(node)} decisions")
            if isinstance(node, ast.ClassDef) and not is_data(node) and len(attributes(node)) > MOST:
                found.append(f"{source.name} {node.name}: {len(attributes(node))} attributes")
    return [line for line in found if line.split(":")[0] not in HOT]


def test_no_function_decides_too_much_and_no_class_keeps_too_much() -> None:
    assert check(SOURCES) == []


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("return x", 1),
        ("return x and y or z", 3),
        ("return [a for a in x if a if not a]", 4),
        ("return 1 if x else 2", 2),
        ("for a in x:\n        while a: pass", 3),
        ("try: pass\n    except A: pass\n    except B: pass\n    assert x", 4),
        ("match x:\n        case 1: pass\n        case _: pass", 3),
        ("def g():\n        if x: pass\n    return lambda: x or y", 2),
    ],
)
def test_what_counts_as_a_decision(body, count) -> None:
    assert decisions(ast.parse(f"def f(x):\n    {body}").body[0]) == count


def test_a_function_and_a_class_beyond_the_bound_are_seen() -> None:
    long = "def f(x):\n    return " + " or ".join("x" * 17)
    assert check([rules.Source("a.py", long)]) == ["a.py f: 17 decisions"]
    fields = "".join(f"    x{i}: int\n" for i in range(14))
    body = f"class A:\n{fields}    def f(self):\n        self.y, self.z = 1, 2\n        self.y += self.x0\n"
    assert check([rules.Source("a.py", body)]) == ["a.py A: 16 attributes"]
    assert check([rules.Source("a.py", f"@dataclass(frozen=True)\n{body}")]) == []
    assert check([rules.Source("a.py", body.replace(", self.z", "").replace(", 2", ""))]) == []
