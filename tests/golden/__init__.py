"""Golden files: every printed format, byte for byte, as it is promised to users.

A test says `assert made == golden("report.txt")`. `make golden` runs these tests with `Golden.renewed` set:
the comparison then writes what the code made into the file, and `git diff tests/golden` shows what a change
means to users.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

HERE = Path(__file__).parent
# An input, given by the requirement: no output of ours can renew it.
GIVEN = frozenset({"requirement_metrics.log"})


class Golden(str):
    """The text of a golden file; under `make golden`, comparing a text with it writes the text there."""

    __slots__ = ("name",)
    renewed: set[str] | None = None  # names of the files written so far; None: compare only
    name: str

    def __eq__(self, made: object) -> bool:
        """Whether the texts are equal. Python asks the subclass first, whichever side of == it stands on."""
        if Golden.renewed is None or not isinstance(made, str):
            return str.__eq__(self, made) is True
        if self.name in GIVEN:
            raise AssertionError(f"{self.name} is given by the requirement and is not renewed")
        (HERE / self.name).write_text(made, encoding="utf-8")
        Golden.renewed.add(self.name)
        return True

    __hash__ = str.__hash__


def golden(name: str) -> Golden:
    """The text of a golden file; of a new one, which `make golden` will write, it is empty."""
    path = HERE / name
    is_new = Golden.renewed is not None and not path.exists()
    text = Golden("" if is_new else path.read_text(encoding="utf-8"))
    text.name = name
    return text


def explain_mismatch(made: object, expected: object) -> list[str] | None:
    """What pytest prints when a text differs from a golden file; None where something else was compared."""
    if not isinstance(expected, Golden) or not isinstance(made, str):
        return None
    return [
        f"the output differs from tests/golden/{expected.name}; if that is meant: make golden",
        *difference(expected, made, expected.name),
    ]


def difference(before: str, after: str, name: str) -> list[str]:
    """The lines of a unified diff."""
    return list(unified_diff(before.splitlines(), after.splitlines(), name, f"{name} now", n=1, lineterm=""))


def files() -> dict[str, str]:
    """The text of every golden file by its name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(HERE.iterdir()) if is_golden(path)}


def is_golden(path: Path) -> bool:
    """Whether it is a golden file, not the code beside them."""
    return path.is_file() and path.suffix != ".py"
