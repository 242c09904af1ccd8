"""Installs packages into an environment: by uv, or by pip where there is no uv.

uv comes from the package index that pip is set up for. It reads nothing of pip's configuration, so that what
`pip config list` says is translated for it: both ask the same indexes.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from steps import Failure, Step

# Options of pip that say where packages come from -> the variable of uv that says it.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "proxy": "ALL_PROXY",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
}
ENTRY = re.compile(r"^(?=[a-zA-Z0-9])", re.MULTILINE)  # a lock is split by it into its head and its packages
TRUE = {"1", "true", "t", "yes", "y", "on"}
# Variables of the caller that would lead a tool to another Python, or tell it of a make that is not its own.
FOREIGN = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"}


def own_variables() -> dict[str, str]:
    """The caller's variables, without the foreign ones."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


def pip_settings(listed: str) -> dict[str, str]:
    """What `pip config list` printed, by option; as in pip, a variable wins over a file's [install], and that
    over its [global].
    """
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.partition(".")
        if section in found and value[:1] in ("'", '"'):
            found[section][option.removeprefix("default-")] = str(ast.literal_eval(value))
    return {**found["global"], **found["install"], **found[":env:"]}


def uv_settings(settings: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """The same for uv: variables, and options for what no variable says."""
    variables = {
        variable: " ".join(settings[option].split())
        for option, variable in VARIABLES.items()
        if settings.get(option)
    }
    # As pip does: all indexes are asked for the best version. The hashes say which file is the right one.
    variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    if "cert" not in settings and ssl.create_default_context().get_ca_certs():
        variables["UV_SYSTEM_CERTS"] = "true"
    # A directory that is not there is a warning of pip's, and an error of uv's.
    links = [os.path.expanduser(place) for place in settings.get("find-links", "").split() if is_there(place)]
    options = [word for place in links for word in ("--find-links", place)]
    if settings.get("no-index", "").lower() in TRUE:
        options.append("--no-index")
    return variables, options


def is_there(place: str) -> bool:
    """Whether a directory exists; what is on another machine is taken to."""
    address = urlsplit(place)
    if address.scheme == "file":
        return Path(url2pathname(address.path)).exists()
    return bool(address.scheme) or Path(place).expanduser().exists()


def writable_cache(own: str, otherwise: Path) -> str:
    """uv's own cache directory if a file can be made in it, else the other one."""
    try:
        Path(own).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=own):
            return own
    except OSError:
        return str(otherwise)


class Installer:
    """The command that installs into an environment.

    Attributes:
        name: of the program, with its version.
        is_uv: whether it is uv.
    """

    def __init__(self, name: str, words: list[str], options: list[str], variables: dict[str, str]) -> None:
        self.name, self.is_uv = name, name.startswith("uv ")
        self._words, self._options, self._variables = words, options, variables

    def run(self, step: Step, command: str, *options: str) -> None:
        """One call, `install` for example, with options that uv and pip both know. Raises Failure."""
        step.run([*self._words, command, *self._options, *options], self._variables)


def get_installer(step: Step, environment: Path, lock: Path) -> Installer:
    """uv at its locked version, put into share/uv of the environment; pip where no index has it.

    Raises Failure where it cannot be had for another reason.
    """
    variables = own_variables() | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off"}
    python, home = str(environment / "bin/python"), environment / "share/uv"
    pip, on_python = [sys.executable, "-m", "pip"], ["--python", python]
    if not importlib.util.find_spec("pip"):  # then the environment gets the one that comes with Python
        step.run([python, "-m", "ensurepip"], variables)
        pip, on_python = [python, "-m", "pip"], []
    uv = str(home / "bin/uv")
    if not is_locked(uv, lock, variables):
        words = ["--require-hashes", "--only-binary", ":all:", "--upgrade", "--target", str(home)]
        try:
            step.run([*pip, "install", *words, "-r", str(lock)], variables)
        except Failure as failure:
            if not failure.is_absent:
                raise
            return Installer("pip (no index has uv)", [*pip, *on_python], [], variables)
    settings, options = uv_settings(pip_settings(tell([*pip, "config", "list"], variables)))
    for name, value in settings.items():
        if not (name.startswith("UV_") and name in variables):  # what the caller says to uv itself is meant
            variables[name] = value
    own_cache = tell([uv, "cache", "dir"], variables)
    variables["UV_CACHE_DIR"] = writable_cache(own_cache, environment / "cache")
    variables |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    name = tell([uv, "--version"], variables).partition(" (")[0]
    return Installer(name, [uv, "pip"], ["--python", python, *options], variables)


def is_locked(uv: str, lock: Path, variables: dict[str, str]) -> bool:
    """Whether there is a uv of the locked version."""
    told = tell([uv, "--version"], variables).split() if Path(uv).exists() else []
    return len(told) > 1 and f"uv=={told[1]} " in lock.read_text(encoding="utf-8")


def tell(words: list[str], variables: dict[str, str]) -> str:
    """What a command prints to its standard output; its warnings are left out."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.run(words, env=variables, text=True, **streams).stdout.strip()
