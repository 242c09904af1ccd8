"""Makes or completes an environment: `python3 scripts/make_env DIRECTORY KIND`, KIND one of those in KINDS.

It is made from the interpreter that runs this, which needs nothing but Python's standard library. What comes
from a package index is what its hash in requirements/lock says, except torch (requirements/torch.txt). TORCH
in the environment names another version of torch. What the tools print is in DIRECTORY/log.
"""

from __future__ import annotations

import concurrent.futures
import csv
import ctypes
import fcntl
import importlib.util
import os
import re
import shlex
import shutil
import signal
import sys
import sysconfig
import venv
from dataclasses import dataclass, field
from pathlib import Path

from installer import ENTRY, get_installer, own_variables, tell
from steps import Failure, Step, Steps

REPO = Path(__file__).resolve().parents[2]
REQUIREMENTS = REPO / "requirements"
HELPERS = "flag_scale/third_party/Megatron-LM/megatron/core/datasets"


@dataclass(frozen=True)
class Kind:
    """What an environment has.

    Attributes:
        locks: files of requirements/lock, which name all that is needed, except torch.
        has_host: whether FlagScale comes, with its extension.
        apart: directory below share/ -> the lock of what is put there, out of every import path.
        has_torch: whether torch comes.
    """

    locks: tuple[str, ...]
    has_host: bool = False
    apart: dict[str, str] = field(default_factory=dict)
    has_torch: bool = True


KINDS = {
    "run": Kind(("run",), has_host=True),
    # What `run` has, and more. The FLOPs oracle counts what only a newer Megatron-Core than FlagScale's has;
    "test": Kind(
        ("test", "accelerate"),
        has_host=True,
        apart={"megatron-core": "core", "megatron-bridge": "bridge", "lightning": "lightning"},
    ),
    "trace": Kind(("trace", "verl", "core")),
    "vllm": Kind(("vllm",)),
    "fleet": Kind(("fleet",), has_torch=False),
}


def main(words: list[str]) -> int:
    """Makes or completes the environment; returns the exit status."""
    if len(words) != 2 or words[1] not in KINDS:
        return complain(f"Usage: python3 scripts/make_env DIRECTORY KIND, KIND one of: {', '.join(KINDS)}")
    directory, kind = Path(words[0]).absolute(), KINDS[words[1]]
    if lack := find_lack(kind):
        return complain(lack)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    logs = directory / "log"
    logs.mkdir(parents=True, exist_ok=True)
    with (directory / ".making").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another one that makes it is waited for
        steps = Steps(logs, REPO)
        try:
            Environment(directory, steps).make(kind)
        except Failure as failure:
            return complain(str(steps.failure or failure))
        except KeyboardInterrupt:
            return complain("interrupted; the same command goes on where it was", status=130)
        finally:
            steps.stop()
    return 0


def complain(text: str, status: int = 1) -> int:
    """Says what is wrong; returns the exit status."""
    print(f"make_env: {text}", file=sys.stderr)
    return status


def find_lack(kind: Kind) -> str:
    """What this machine lacks, and how to get it: said before anything is downloaded. Empty if nothing."""
    lacks = {}  # package of Debian -> what is missing, and what for
    if not (importlib.util.find_spec("pip") or importlib.util.find_spec("ensurepip")):
        lacks["python3-venv"] = f"pip or ensurepip in {sys.executable}: the first package comes by it"
    compiler = os.environ.get("CXX") or "g++"
    header = Path(sysconfig.get_path("include"), "Python.h")
    if kind.has_host and not shutil.which(shlex.split(compiler)[0]):
        lacks["g++"] = f"{compiler}: it builds FlagScale's extension (CXX=clang++ names another compiler)"
    if kind.has_host and not header.exists():
        lacks["python3-dev"] = f"{header}: FlagScale's extension is built with Python's headers"
    if not lacks:
        return ""
    lines = ["this machine lacks", *(f"  {lack}" for lack in lacks.values())]
    return "\n".join([*lines, f"On Debian: apt-get install {' '.join(lacks)}"])


class Environment:
    """One of them, being made."""

    def __init__(self, directory: Path, steps: Steps) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"
        self.site = Path(sysconfig.get_path("platlib", "venv", {"platbase": str(directory)}))
        self._steps = steps

    def make(self, kind: Kind) -> None:
        """Every step. Raises Failure."""
        unfinished = self.directory / ".unfinished"
        with self._steps.step("Python and uv", "python") as step:
            self._open()
            if unfinished.exists():
                self._forget_damaged()
            unfinished.touch()
            self._installer = get_installer(step, self.directory, lock_of("uv"))
            step.title = f"Python {sys.version.split()[0]} and {self._installer.name}"
        host = [lock_of("flagscale")] if kind.has_host else []
        self._install("build tools", self._lock_tools(kind), *host)
        with concurrent.futures.ThreadPoolExecutor() as beside:
            builds = [beside.submit(self._build_package)]
            builds += [beside.submit(self._build_helpers)] if kind.has_host else []
            try:
                self._install_rest(kind)
                for build in builds:
                    build.result()
            except BaseException:
                self._steps.stop()
                raise
        unfinished.unlink()

    def _install_rest(self, kind: Kind) -> None:
        self._install("packages", *map(lock_of, kind.locks))
        if kind.has_torch:
            self._install_torch(may_be_base=kind.has_host)
        for name, lock in kind.apart.items():
            self._install(name, lock_of(lock), target=self.directory / "share" / name)

    def _open(self) -> None:
        """Makes the bare environment where it is not there, does not work, or is another Python's."""
        ours = f"{self.directory} {sys.version_info[:2]}"
        told = "import os, sys; print(os.path.abspath(sys.prefix), sys.version_info[:2])"
        if self.python.exists() and tell([str(self.python), "-c", told], own_variables()) == ours:
            return
        for ready in self.directory.glob(".*ready"):
            ready.unlink()
        for name in ("bin", "lib", "lib64", "include", "share"):
            path = self.directory / name
            path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)
        venv.create(self.directory, symlinks=True)

    def _forget_damaged(self) -> None:
        """Forgets packages that an interrupted installer left in part, so that they are installed anew."""
        for info in self.site.glob("*.dist-info"):
            record = info / "RECORD"
            files = [row[0] for row in csv.reader(record.read_text().splitlines())] if record.exists() else []
            if not files or not all((self.site / file).exists() for file in files):
                shutil.rmtree(info)

    def _lock_tools(self, kind: Kind) -> Path:
        """The lock of the build tools, at the versions of the environment's own locks where these have them:
        nothing replaces them while they build this package.
        """
        tools: dict[str, str] = {}
        for lock in ("build", *kind.locks):
            found = {entry.partition("==")[0]: entry for entry in entries_of(lock_of(lock))}
            tools |= {name: entry for name, entry in found.items() if lock == "build" or name in tools}
        path = self.directory / "log/build_tools.lock"
        path.write_text("".join(tools.values()))
        return path

    def _install(self, title: str, *locks: Path, target: Path | None = None) -> None:
        count = sum(len(entries_of(lock)) for lock in locks)
        words = [word for lock in locks for word in ("-r", str(lock))]
        # Without what they say they need: the locks name all of it, except torch.
        words += ["--require-hashes", "--no-deps", "--no-build-isolation"]
        place = ["--upgrade", "--target", str(target)] if target else []
        with self._steps.step(f"{title} ({count})", title.replace(" ", "_")) as step:
            self._installer.run(step, "install", *words, *place)

    def _install_torch(self, may_be_base: bool) -> None:
        """The base interpreter's torch where that sees a GPU: it was chosen for that GPU and its driver.
        Else the build for CPUs where there is no GPU and an index has it. Else what the index gives.
        """
        wanted = os.environ.get("TORCH")
        pinned = re.findall("^torch==.*", (REQUIREMENTS / "torch.txt").read_text(), re.MULTILINE)[0]
        requirement = f"torch=={wanted}" if wanted else pinned
        with self._steps.step(requirement, "torch") as step:
            place = find_base_torch() if may_be_base and not wanted else ""
            # A .pth file: --system-site-packages does not find it where the base is itself an environment's.
            lent = self.site / "base_torch.pth"
            if place:
                step.title = "torch of the base interpreter, which sees a GPU"
                lent.write_text(f"{place}\n")
                return
            lent.unlink(missing_ok=True)
            if has_gpu() or not self._try(step, f"{requirement}+cpu"):
                self._installer.run(step, "install", requirement)
            told = "import importlib.metadata as m; print(m.version('torch'))"
            step.title = f"torch {tell([str(self.python), '-c', told], own_variables())}"

    def _try(self, step: Step, requirement: str) -> bool:
        try:
            self._installer.run(step, "install", requirement)
        except Failure as failure:
            if self._steps.failure or not failure.is_absent:
                raise
            self._steps.say(f"{step.title}: no index has its build for CPUs; the default one is some GB")
            return False
        return True

    def _build_package(self) -> None:
        with self._steps.step("flagscale_perf and its C extensions", "flagscale_perf") as step:
            options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
            step.run([str(self.python), "-m", "pip", "install", *options, "-e", "."], own_variables())

    def _build_helpers(self) -> None:
        """Megatron's extension, which it otherwise builds on first use, every node's first rank for itself:
        done here, ranks of one machine never race.
        """
        place, suffix = self.site / HELPERS, sysconfig.get_config_var("EXT_SUFFIX")
        built = place / f"helpers_cpp{suffix}"
        if built.exists() and built.stat().st_mtime >= (place / "helpers.cpp").stat().st_mtime:
            return
        # Its Makefile asks python3 and python3-config on the PATH, which need not be this environment's.
        variables = own_variables()
        variables["PATH"] = os.pathsep.join([str(self.python.parent), variables.get("PATH", os.defpath)])
        with self._steps.step("FlagScale's C++ extension", "flagscale") as step:
            step.run(["make", "-C", str(place), f"LIBEXT={suffix}", "OUT=unfinished"], variables)
            (place / "unfinished").replace(built)


def lock_of(name: str) -> Path:
    """A file of requirements/lock."""
    return REQUIREMENTS / f"lock/{name}.txt"


def entries_of(lock: Path) -> list[str]:
    """Its packages, each with its hashes."""
    return ENTRY.split(lock.read_text())[1:]


def find_base_torch() -> str:
    """The directory with the base interpreter's torch, if that sees a GPU; else empty."""
    code = (
        "import torch, pathlib; torch.cuda.is_available() and print(pathlib.Path(torch.__file__).parents[1])"
    )
    return tell([sys.executable, "-c", code], dict(os.environ)) if importlib.util.find_spec("torch") else ""


def has_gpu() -> bool:
    """Whether there is a driver of a GPU that torch's default build works on."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
