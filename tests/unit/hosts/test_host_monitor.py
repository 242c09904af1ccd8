"""A monitor of the host's own: its flags, and when it begins."""

import argparse
import sys
from types import SimpleNamespace

import pytest

from flagscale_perf.arguments import PerfConfig, add_perf_arguments
from flagscale_perf.hosts import host_monitor
from flagscale_perf.hosts.patching import Patches


@pytest.fixture
def patches():
    made = Patches()
    yield made
    made.undo()


def add_host_flags(parser):
    """Some that ours has, with other defaults, and one that it lacks."""
    parser.add_argument("--enable-perf-monitor", action="store_true", default=False)
    parser.add_argument("--perf-log-interval", type=int, default=10)
    parser.add_argument("--no-perf-memory-tracking", dest="perf_memory_tracking", action="store_false")
    parser.add_argument("--perf-log-format", choices=["text", "json", "both"], default="both")
    return parser


def parsed(patches, *words):
    module = SimpleNamespace(_add_perf_monitor_args=add_host_flags)
    host_monitor.patch_arguments(module, patches)
    parser = add_perf_arguments(argparse.ArgumentParser())
    assert module._add_perf_monitor_args(parser) is parser
    return parser.parse_args(words)


def test_flags_that_both_have_are_ours_and_the_others_are_added(patches):
    args = parsed(
        patches, "--enable-perf-monitor=true", "--perf-memory-tracking", "false", "--perf-log-format", "json"
    )
    assert (args.enable_perf_monitor, args.perf_memory_tracking, args.perf_log_format) == (
        True,
        False,
        "json",
    )
    assert args.perf_log_interval is None  # not given: the environment decides
    assert PerfConfig.from_args(args, {"FLAGSCALE_PERF_LOG_INTERVAL": "3"}).perf_log_interval == 3


def test_a_wrong_value_for_one_of_its_own_flags_is_refused_by_it(patches):
    with pytest.raises(SystemExit):
        parsed(patches, "--perf-log-format", "xml")


def begun(patches, monkeypatch, environ, *words):
    """What the host's monitor was begun with, and what was announced."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    given, said = [], []
    module = SimpleNamespace(initialize_perf_monitor=given.append)
    host_monitor.patch_hooks(module, patches, said.append)
    args = add_perf_arguments(argparse.ArgumentParser()).parse_args(words)
    before = dict(vars(args))
    module.initialize_perf_monitor(args)
    assert vars(args) == before, "the host's arguments stay as they are"
    return given[0], said


SAID = ["FlagScale's own performance monitor stays off beside this one (--perf-host-monitor keep runs both)"]


@pytest.mark.parametrize(
    ("environ", "words"),
    [({}, ["--enable-perf-monitor"]), ({"FLAGSCALE_PERF_ENABLE_MONITOR": "1"}, [])],
    ids=["flag", "variable"],
)
def test_it_stays_off_where_ours_is_on(patches, monkeypatch, environ, words):
    given, said = begun(patches, monkeypatch, environ, *words)
    assert (given.enable_perf_monitor, said) == (False, SAID)


def test_without_ours_nothing_is_said_and_it_stays_off(patches, monkeypatch):
    given, said = begun(patches, monkeypatch, {}, "--perf-host-monitor", "keep")
    assert (given.enable_perf_monitor, said) == (False, [])


def test_where_it_is_kept_it_has_our_options_and_a_directory_of_its_own(patches, monkeypatch):
    variables = {"FLAGSCALE_PERF_LOG_INTERVAL": "7"}
    words = ["--enable-perf-monitor", "--perf-host-monitor", "keep", "--perf-log-dir", "logs"]
    given, said = begun(patches, monkeypatch, variables, *words)
    assert (given.enable_perf_monitor, given.perf_log_interval, said) == (True, 7, [])
    assert given.perf_log_dir == "logs/host_monitor"


def test_a_host_without_one_is_left_alone(patches):
    module = SimpleNamespace()
    host_monitor.patch_arguments(module, patches)
    host_monitor.patch_hooks(module, patches, pytest.fail)
    assert vars(module) == {}


def test_the_facts_say_what_became_of_it(monkeypatch):
    monkeypatch.delitem(sys.modules, host_monitor.HOOKS_MODULE, raising=False)
    assert host_monitor.state_of(PerfConfig()) is None
    monkeypatch.setitem(sys.modules, host_monitor.HOOKS_MODULE, SimpleNamespace())
    assert host_monitor.state_of(PerfConfig()) == "replace"
    assert host_monitor.state_of(PerfConfig(perf_host_monitor="keep")) == "keep"
