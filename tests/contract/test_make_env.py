"""The installer (scripts/make_env): it asks the indexes that pip is set up for, and says why it failed."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import REPO

ROOM = REPO / "scripts/make_env"
MODULES = ("installer", "steps")
MAIN = "make_env_main"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Its modules, which import each other as those of a program do."""
    monkeypatch.syspath_prepend(ROOM)
    modules = {name: importlib.import_module(name) for name in MODULES}
    spec = importlib.util.spec_from_file_location(MAIN, ROOM / "__main__.py")
    assert spec and spec.loader
    sys.modules[MAIN] = main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    yield SimpleNamespace(**modules, main=main)
    for name in (*MODULES, MAIN):
        del sys.modules[name]


def test_pips_configuration_as_uv_has_to_read_it(parts: SimpleNamespace, tmp_path: Path) -> None:
    listed = "\n".join(
        (
            "global.index-url='https://user:secret@index.example/root'",
            "global.extra-index-url='https://one.example/\\nhttps://two.example/'",
            "global.timeout='15'",
            "install.timeout='30'",
            ":env:.default-timeout='60'",
            f":env:.find-links='{tmp_path} {tmp_path}/none file://{tmp_path}/none https://links.example/'",
            "global.cert='ca.pem'",
            "global.trusted-host='one.example'",
            "global.no-index='no'",
            "freeze.timeout='5'",
        )
    )
    variables, options = parts.installer.uv_settings(parts.installer.pip_settings(listed))
    assert variables == {
        "UV_DEFAULT_INDEX": "https://user:secret@index.example/root",
        "UV_INDEX": "https://one.example/ https://two.example/",
        "UV_HTTP_TIMEOUT": "60",
        "SSL_CERT_FILE": "ca.pem",
        "UV_INSECURE_HOST": "one.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert options == ["--find-links", str(tmp_path), "--find-links", "https://links.example/"]


def test_no_index_at_all(parts: SimpleNamespace) -> None:
    settings = parts.installer.pip_settings(":env:.no-index='1'\n:env:.cert='ca.pem'")
    assert parts.installer.uv_settings(settings) == (
        {
            "SSL_CERT_FILE": "ca.pem",
            "UV_INDEX_STRATEGY": "unsafe-best-match",
        },
        ["--no-index"],
    )


def test_a_cache_that_cannot_be_written(parts: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert parts.installer.writable_cache(str(tmp_path / "own"), tmp_path) == str(tmp_path / "own")
    assert parts.installer.writable_cache(str(tmp_path / "file/own"), tmp_path) == str(tmp_path)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("cause: tcp connect error\nerror: Failed to fetch: x", "a package index cannot be reached"),
        (
            "connection broken by 'NewConnectionError'\nERROR: No matching distribution found",
            "a package index",
        ),
        (
            "ProtocolError: (\"Connection broken: ConnectionResetError(104, '')\")",
            "a package index cannot be",
        ),
        (
            "cause: Hash mismatch for `six==1.17.0`",
            "a file from the index is not the one whose hash is locked",
        ),
        ("No solution found when resolving dependencies", "no package index that pip is set up for has what"),
        ("cause: failed to copy: No space left on device (os error 28)", "the disk is full"),
        ("failed to read directory `/c/archive-v0/dk`: No such file or directory", "uv's cache is damaged"),
        ("helpers.cpp:1: fatal error: Python.h: No such file", "Python's headers are missing"),
        ("something else", ""),
    ],
)
def test_a_step_that_fails_says_why_and_shows_the_end_of_its_log(
    parts: SimpleNamespace, tmp_path: Path, printed: str, reason: str
) -> None:
    steps = parts.steps.Steps(tmp_path, tmp_path)
    before = "print('No space left on device')"
    with pytest.raises(parts.steps.Failure) as caught, steps.step("packages", "packages") as step:
        step.run([sys.executable, "-c", before], {})
        step.run([sys.executable, "-c", "import sys; print(sys.argv[1]); sys.exit(3)", printed], {})
    assert steps.failure is caught.value
    assert caught.value.reason.startswith(reason)
    assert bool(caught.value.reason) == bool(reason)
    last = [f"  | {line}" for line in printed.splitlines()]
    assert str(caught.value).splitlines()[-len(last) :] == last


def test_one_failure_ends_what_runs_beside_it(parts: SimpleNamespace, tmp_path: Path) -> None:
    steps = parts.steps.Steps(tmp_path, tmp_path)
    with pytest.raises(parts.steps.Failure, match="beside"), steps.step("beside", "beside") as step:
        with (tmp_path / "sleeper").open("w") as file:
            sleeper = steps.start(["sleep", "600"], {"PATH": "/usr/bin:/bin"}, file.fileno())
        step.run([sys.executable, "-c", "raise SystemExit(1)"], {})
    assert sleeper.wait() == -15


def made_up_lock(path: Path, version: str) -> None:
    """A lock of a package `tool`, whose wheel stands beside it."""
    wheel = path.with_name(f"tool-{version}-py3-none-any.whl")
    info = f"tool-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tool.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tool\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    path.write_text(f"tool=={version} \\\n    --hash=sha256:{digest}\n")


def test_build_tools_are_not_replaced_while_they_build(
    parts: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an environment's own lock has another version of a build tool (that of vLLM does)."""
    locks, directory = tmp_path / "requirements/lock", tmp_path / "made"
    for path in (locks, directory / "log"):
        path.mkdir(parents=True)
    made_up_lock(locks / "build.txt", "2")
    made_up_lock(locks / "own.txt", "1")
    monkeypatch.setattr(parts.main, "REQUIREMENTS", locks.parent)
    words = [sys.executable, "-m", "pip", "--python", str(directory / "bin/python")]
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(locks), "PIP_CONFIG_FILE": "/dev/null"}
    pip = parts.installer.Installer("pip", words, [], offline)
    monkeypatch.setattr(parts.main, "get_installer", lambda *_: pip)
    made = parts.main.Environment(directory, parts.steps.Steps(directory / "log", tmp_path))
    monkeypatch.setattr(made, "_build_package", lambda: None)
    monkeypatch.setattr(made, "_install_torch", lambda may_be_base: None)
    for _ in ("new", "completed"):
        made.make(parts.main.Kind(("own",)))
        assert [info.name for info in made.site.glob("tool-*")] == ["tool-1.dist-info"]
        assert "already satisfied: tool==1" in (directory / "log/packages.txt").read_text()


def test_what_the_machine_lacks_is_said_before_anything_is_made(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOM), str(tmp_path / "made"), "run"]
    done = subprocess.run(words, env={"PATH": "", "CXX": "no-such-c++"}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    first, second, *_, last = done.stderr.splitlines()
    assert first == "make_env: this machine lacks"
    assert second.startswith("  no-such-c++: ")
    assert last.startswith("On Debian: apt-get install g++")
    assert not (tmp_path / "made").exists()


def test_a_kind_that_is_not_there(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOM), str(tmp_path), "demo"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("KIND one of: run, test, trace, vllm\n")
