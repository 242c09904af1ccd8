"""The loop's events on ranks beside others, with a loop and loggers that only note what they are told."""

import os
from dataclasses import replace

import pytest

from flagscale_perf import hooks as hooks_module
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.training.ranks.blocks import RankIdentity
from tests.unit.test_hooks import FACTS, FORWARD, PAIR, FakeLogger, FakeLoop, logger

__all__ = ["logger"]  # a fixture


def set_place(monkeypatch, rank):
    for name, value in (("RANK", rank), ("WORLD_SIZE", 2), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))


class FakeRankLogger(FakeLogger):
    """Stands in for RankLogger."""

    started: "list[FakeRankLogger]" = []

    def __init__(self, place, identity, directory):
        super().__init__(None, None)
        self.place, self.identity, self.directory = place, identity, directory

    @classmethod
    def start(cls, place, identity, directory):
        cls.started.append(cls(place, identity, directory))
        return cls.started[-1]


@pytest.fixture
def rank_logger(monkeypatch):
    FakeRankLogger.started = []
    monkeypatch.setattr(hooks_module, "RankLogger", FakeRankLogger)
    return FakeRankLogger


def test_with_other_ranks_the_files_are_waited_for_when_the_process_ends(logger, monkeypatch):
    set_place(monkeypatch, 0)
    at_exit = []
    monkeypatch.setattr(hooks_module.atexit, "register", lambda *call: at_exit.append(call))
    loop, hooks = FakeLoop(facts=replace(FACTS, world_size=2)), TrainingHooks()
    hooks.train_start(loop)
    hooks.train_end(ValueError())
    assert logger.started[0].reasons == ["exception ValueError"]
    assert "summary" not in " ".join(loop.said), "the other ranks would wait for this one"
    ((farewell, *given),) = at_exit
    farewell(*given)
    assert loop.said[-1] == "flagscale_perf: summary in perf/summary.json"


def test_another_rank_measures_and_says_nothing(logger, rank_logger, monkeypatch, capfd):
    set_place(monkeypatch, 1)
    loop, hooks = (
        FakeLoop(rank_0=False, facts=replace(FACTS, world_size=2, resume_iteration=0)),
        TrainingHooks(),
    )
    hooks.train_start(loop)
    for _ in range(2):
        hooks.step_start()
        hooks.step_end("result")
    hooks.train_end(None)
    (told,) = rank_logger.started
    assert [(record.iteration, record.model_flops) for record in told.records] == [(1, None), (2, None)]
    assert (told.place.rank, told.directory, told.reasons, told.events) == (
        1,
        "logs/perf_monitor",
        ["completed"],
        [],
    )
    process = 1, os.uname().nodename, os.getpid()
    assert told.identity == RankIdentity(*process, "CPU (rehearsal)", None, 0, 1, 1, 2, 8)
    assert (logger.started, loop.said, capfd.readouterr()) == ([], [], ("", ""))


def test_another_rank_that_nobody_could_find_does_nothing(logger, rank_logger):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(rank_0=False))
    assert (hooks.active, logger.started, rank_logger.started) == (False, [], [])


def test_another_rank_whose_monitor_fails_says_one_line_and_stays_out(
    logger, rank_logger, monkeypatch, capsys
):
    def refuse(place, identity, directory):
        raise OSError("no shared memory")

    set_place(monkeypatch, 1)
    monkeypatch.setattr(rank_logger, "start", refuse)
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(rank_0=False))
    hooks.train_end(None)
    line = (
        "flagscale_perf: monitor switched off at train_start: OSError: no shared memory (training goes "
        "on without it)\n"
    )
    assert (hooks.active, capsys.readouterr()) == (False, ("", line))


def test_rank_0_looks_for_others_where_there_are_any_and_says_where_they_cannot_be_found(logger, monkeypatch):
    alone, lost, among = (
        FakeLoop(),
        FakeLoop(facts=replace(FACTS, world_size=2)),
        FakeLoop(facts=replace(FACTS, world_size=2)),
    )
    for loop in (alone, lost):
        TrainingHooks().train_start(loop)
    set_place(monkeypatch, 0)
    TrainingHooks().train_start(among)
    assert [session.identity and session.identity.rank for session in logger.started] == [None, None, 0]
    missing = (
        "flagscale_perf: not available: other ranks (the environment has no RANK, WORLD_SIZE and LOCAL_RANK)"
    )
    assert [missing in loop.said for loop in (alone, lost, among)] == [False, True, False]


def test_that_another_rank_has_closed_its_connection_is_an_event(logger):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    hooks.train_end(RuntimeError("gloo: Connection closed by peer [127.0.0.1]:1234"))
    text = "another rank has closed its connection: RuntimeError: Connection closed by peer"
    assert logger.started[0].events[-1] == ("rank", 0, text)


@pytest.mark.parametrize("rank_0", [True, False])
def test_a_monitor_that_is_off_does_nothing_on_any_rank(logger, rank_logger, monkeypatch, rank_0):
    set_place(monkeypatch, 0 if rank_0 else 1)
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(rank_0, config=PerfConfig()))
    assert not hooks.active
    hooks.train_end(None)
    assert (logger.started, rank_logger.started) == ([], [])


class CountedWork:
    """What a rank counts in two steps, and the monitor's time for it."""

    def __init__(self, ranks):
        self.ranks, self.spent_ns, self.begun = ranks, 5_000_000, 0

    def begin(self):
        self.begun += 1

    def take(self):
        return [(15, 100, 7), (None, None, 7)][self.begun - 1]


@pytest.mark.parametrize(("ranks", "tokens", "squared_lengths"), [(2, 30, 200), (0, 32, 4 * 8 * 8)])
def test_what_a_rank_counts_is_in_its_steps_and_other_ranks_are_taken_to_have_as_much(
    ranks, tokens, squared_lengths, logger
):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    hooks.count_by(CountedWork(ranks))
    for _ in range(2):
        hooks.step_start()
        hooks.step_end("result")
        hooks.logged(None, None)
    hooks.train_end(None)
    first, second = logger.started[0].records
    assert first[-3:] == (15, 100, 7) and second[-3:] == (None, None, 7)
    assert (first.tokens, first.model_flops) == (tokens, 3 * (tokens * FORWARD + squared_lengths * PAIR // 2))
    assert (second.tokens, second.model_flops) == (32, 3 * (32 * FORWARD + 4 * 8 * 8 * PAIR // 2))
    assert first.self_ns >= 5_000_000


def test_the_hosts_sums_over_all_ranks_win(logger):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    hooks.count_by(CountedWork(2))
    hooks.step_start()
    hooks.step_end("result")
    hooks.logged(28, 150)
    hooks.train_end(None)
    (step,) = logger.started[0].records
    assert (step.tokens, step.model_flops) == (28, 3 * (28 * FORWARD + 150 * PAIR // 2))
