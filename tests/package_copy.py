"""CONTRIBUTING.md done as it stands there: its paragraphs, and a scratch copy of the package to do it to."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.conftest import REPO, RunPython

PAGE = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")

# Of pytest in a process of its own: the plugins that happen to be installed take longer to load than it does.
NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class Paragraph:
    """How to add one kind of thing.

    Attributes:
        text: from the kind's bold name to the next kind.
        code: the code blocks in it.
    """

    def __init__(self, kind: str) -> None:
        """`kind` as the page names it, such as "a metric"."""
        begin = PAGE.index(f"\n**{kind}**")
        end = PAGE.find("\n**", begin + 1)
        self.text = PAGE[begin : end if end > 0 else None]
        self.code: list[str] = re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)

    def word(self, pattern: str) -> str:
        """The only match of a pattern with one group, such as the name of the file to change."""
        (found,) = set(re.findall(pattern, " ".join(self.text.split())))
        return str(found)


class PackageCopy:
    """A copy of the package. Paths are relative to the repository's root."""

    def __init__(self, directory: Path, run_python: RunPython) -> None:
        """Copies the package into `directory`."""
        self._directory = directory
        self._run_python = run_python
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPO / "flagscale_perf", directory / "flagscale_perf", ignore=ignored)

    def create(self, file: str, text: str) -> None:
        """A file that is new."""
        path = self._directory / file
        assert not path.exists()
        path.write_text(text, encoding="utf-8")

    def append(self, file: str, text: str) -> None:
        """Code behind everything else."""
        path = self._directory / file
        path.write_text(path.read_text(encoding="utf-8") + "\n\n" + text, encoding="utf-8")

    def insert(self, file: str, text: str, before: str, behind: str = "") -> None:
        """The text before the first `before` that follows `behind`."""
        path = self._directory / file
        content = path.read_text(encoding="utf-8")
        place = content.index(before, content.index(behind))
        path.write_text(content[:place] + text + content[place:], encoding="utf-8")

    def python(self, *args: object) -> str:
        """What `python ARGS...` prints, with the copy and this repository's tests importable."""
        done = self._run_python(*args, env={"PYTHONPATH": f"{self._directory}:{REPO}"} | NO_PLUGINS)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def command(self, *args: object) -> str:
        """What `flagscale-perf ARGS...` prints."""
        return self.python("-m", "flagscale_perf", *args)

    def contract(self, file: str, chosen: str) -> str:
        """What pytest prints of a contract suite run over the copy; `chosen` as for its `-k`."""
        # without append, pytest puts this repository before the copy
        options = ("-v", "-p", "no:cacheprovider", "--import-mode=append", "-k", chosen)
        return self.python("-m", "pytest", *options, REPO / file)
