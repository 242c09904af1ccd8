"""A hook runs around a module's own code, and neither its failure nor the module's changes the import."""

import importlib
import sys

import pytest

from flagscale_perf.hosts.import_hook import ImportHook


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Three importable modules that note their execution in a shared list."""
    log = []
    monkeypatch.setitem(sys.modules, "hook_log", log)
    for name, body in {
        "watched_a": "",
        "watched_b": "import watched_a",
        "watched_bad": "raise RuntimeError('own fault')",
    }.items():
        (tmp_path / f"{name}.py").write_text(
            f"import sys; sys.modules['hook_log'].append('{name}')\n{body}\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield log
    for name in ("watched_a", "watched_b", "watched_bad"):
        sys.modules.pop(name, None)


@pytest.fixture
def make_hook():
    hooks = []

    def make(before=None, after=None, failed=None):
        hook = ImportHook(
            before or {}, after or {}, failed or (lambda *_: pytest.fail("no callback was to fail"))
        )
        hooks.append(hook)
        hook.install()
        return hook

    yield make
    for hook in hooks:
        hook.uninstall()


def test_before_and_after_surround_the_modules_own_code(modules, make_hook):
    make_hook(
        before={"watched_b": lambda: modules.append("before b")},
        after={"watched_a": lambda module: modules.append(module.__name__ + " done")},
    )
    importlib.import_module("watched_b")
    assert modules == ["before b", "watched_b", "watched_a", "watched_a done"]


def test_the_module_keeps_its_own_loader(modules, make_hook):
    make_hook(after={"watched_a": lambda module: None})
    module = importlib.import_module("watched_a")
    assert type(module.__spec__.loader).__name__ == type(module.__loader__).__name__ == "SourceFileLoader"
    assert importlib.reload(module) is module
    assert modules == ["watched_a", "watched_a"]


def test_a_module_imported_before_gets_its_call_at_once(modules, make_hook):
    importlib.import_module("watched_a")
    seen = []
    make_hook(after={"watched_a": seen.append})
    assert seen == [sys.modules["watched_a"]]


def test_a_failing_callback_is_told_and_the_import_succeeds(modules, make_hook):
    told = []
    make_hook(
        before={"watched_a": lambda: 1 / 0},
        after={"watched_a": lambda module: module.nothing},
        failed=lambda name, error: told.append((name, type(error))),
    )
    assert importlib.import_module("watched_a").__name__ == "watched_a"
    assert told == [("watched_a", ZeroDivisionError), ("watched_a", AttributeError)]


def test_the_modules_own_error_passes_unchanged(modules, make_hook):
    make_hook(after={"watched_bad": lambda module: modules.append("never")})
    with pytest.raises(RuntimeError, match="own fault"):
        importlib.import_module("watched_bad")
    assert modules == ["watched_bad"]


def test_a_module_that_does_not_exist_is_still_not_found(make_hook):
    make_hook(before={"watched_none": lambda: None}, after={"watched_none": lambda module: None})
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("watched_none")


def test_a_finder_of_the_old_protocol_is_passed_over(modules, make_hook, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [object(), *sys.meta_path])
    seen = []
    hook = make_hook(after={"watched_a": lambda module: seen.append(module.__name__)})
    assert hook.find_spec("watched_a", None).name == "watched_a"
