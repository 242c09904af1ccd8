"""A sentence is put into the reader's language by one table, whole or by its parts."""

from __future__ import annotations

import re

import pytest

from flagscale_perf.spine.language import CHINESE, ENGLISH, chosen, live, said, say, using

TWO_WORDS = re.compile(r"(?<![`\w./=-])[a-z]{2,} [a-z]{2,}(?![\w/=])")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ENGLISH),
        ({"LANG": "zh_CN.UTF-8"}, CHINESE),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, ENGLISH),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW.UTF-8"}, CHINESE),
        ({"LC_ALL": "", "LANG": "zh"}, CHINESE),
    ],
)
def test_the_locale_chooses(environ: dict[str, str], expected: str) -> None:
    assert chosen(None, environ) == expected
    assert chosen("en", environ) == ENGLISH


def test_a_sentence_is_put_together_of_what_the_table_has() -> None:
    with using(CHINESE):
        title = "Rank 3 on node-7 makes the others wait 12.5 ms of each step of 120.0 ms, in forward"
        assert said(title) == "rank 3（node-7） 掉队：每步让其他 rank 等待 12.5 ms（一步 120.0 ms），慢在前向"
        assert said("of unknown words") == "of unknown words"
        assert say("not judged") == "未判断"
    assert said("not judged") == "not judged"


COMPOSED = [
    "Ranks 4 to 7 have more work, which costs 12.0 ms of each step of 90.0 ms, in backward from step 300 on",
    "Rank 3 costs the job 9.9 ms each in 33 of 599 steps, about every 17 steps, in data loading",
    "A step takes longer and longer from about iteration 85 on (70.9 s after the start): by "
    "7.5 to 12 %, from 1011.7 to 1113.0 ms a step, in all phases alike",
    "Zeroing the gradients takes longer from iteration 101 to 240, in 3 steps: by 10 %, from "
    "10.0 to 11.0 ms a step, while the host is short of CPU",
    "30 steps, in 5 bursts of some 6, take 152.7 ms longer on average in the schedule of "
    "forward and backward, outside both: 12.9 % of the steps' time",
    "of the steps' time (0.467 to 99.0 ms a step; 100.0 ms longer than the others, last in "
    "257 of 599 steps; without it alone a step gains 0.499 ms, without all late ranks 99.4 "
    "ms)",
    "The host node-7 is short of CPU: rank 3's training thread waits 9.4 % of the time for "
    "one of its 2 cores",
    "Pipeline stage 2 has more to do: balancing the stages would save 1.2 % of the steps' "
    "time, and at most 3.4 % if this stage did only the others' average",
    "bytes, of a get's time (fitted to 420 operations of 6 shapes, median error 0.0 %)",
    "layer 1 to the median layer of the same step, 1.94 to 2.16 in 3 steps: 9.454 to 11.666 "
    "ms more, most of it in the layer itself (matmul)",
    "raise it: more processes prepare batches ahead; it is 2",
    # what a run says unasked
    "steps 41 to 50 took 18 % longer: rank 3 (node0, NVIDIA H200) takes 40 ms longer in forward than its "
    "peers, clock capped by power; observed: rank 0's clock capped by power",
    "no step for 62 s (usually one in 0.3 s): the others wait for rank 3: nothing comes from there; ranks 0 "
    "to 2: for 61 s in exposed_grad_comm, at a/b.py:7 in f",
    "nothing after iteration 12 from rank 5 (node1); others are at iteration 40",
    "slow ranks are not named: without phases (--perf-breakdown) waiting cannot be separated from work",
    "a step takes 12 % longer since about iteration 120 (100 to 112 ms)",
    "rank 3 (node1)'s training thread waits 12.5 % of the time for a CPU",
    "the job stood still for 12.5 s: rank 0's process was stopped, by SIGSTOP or a debugger; this time is in "
    "no rate",
    "phases switched off: the monitor takes 140 us a step, 0.21 % of the time, more than --perf-max-overhead"
    " 0.1 (for phases at least 60 us a step) allows",
    "the writer is blocked: the disk of /x does not answer, or process 77 was stopped; training goes on; 4096"
    " records have room in memory, further ones are dropped and counted",
]


@pytest.mark.parametrize("english", COMPOSED)
def test_composed_findings_leave_no_english(english: str) -> None:
    with using(CHINESE):
        made = said(english)
    assert TWO_WORDS.search(made) is None, made
    assert sorted(re.findall(r"[\d.]+", made)) == sorted(re.findall(r"[\d.]+", english))


def test_what_a_run_says_unasked_is_in_the_language_of_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says it stays, and so does the language of reports, which the user of a process has chosen."""
    line = "flagscale_perf profile: no hardware counters: a CPU has none that are read"
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert live(line) == line
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert live(line) == "flagscale_perf profile: 没有硬件计数器：CPU 没有可读的计数器"
    assert said("not judged") == "not judged"


def test_a_frame_of_a_stack_is_a_name() -> None:
    with using(CHINESE):
        assert said("a/forward.py:12 in forward") == "a/forward.py:12 in forward"
        assert said("forward") == "前向"


UNKNOWN = [
    "some words of one sentence, which nobody has put into the table",
    "the 5 iterations from 7 to 9 of words, each beside 1 clean",
    "· · in other words of the job, not known",
    "an odd figure (with a note of it; and another of it) in a call",
    "it waits for a word of each step: in layer 2, mlp (host)",
]


@pytest.mark.parametrize("english", UNKNOWN)
def test_a_sentence_that_the_table_does_not_have_stays_english_and_whole(english: str) -> None:
    with using(CHINESE):
        assert said(english) == english


def test_labels_of_a_tree_keep_their_depth() -> None:
    with using(CHINESE):
        assert said("· · start-up") == "· · 启动"


@pytest.mark.parametrize(
    "text", ["a, " * 5_000, "1 to 2 of 3, " * 70, "{0} {h0} %s \\1 to 3", "; ", "\x1b[31m to 1"]
)
def test_whatever_a_file_has_is_said(text: str) -> None:
    with using(CHINESE):
        assert said(text)
