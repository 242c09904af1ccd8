"""The limits by which ranks are named slow, each with the reason for its value.

Chosen on simulated jobs (tests/rank_simulator.py): benchmarks/bench_ranks.py counts false alarms and
detections by size of the job and kind of noise, and benchmarks/results has its figures. docs/metrics.md,
"Ranks", says what is compared with what.
"""

from __future__ import annotations

from flagscale_perf.analysis.rules import Limit

WINDOW = Limit(
    3,
    "rounds in a row",
    "ours: 15 steps are inside the 20 after which a slow rank should be known; "
    "hiccups, bursts and pauses are shorter",
)
HISTORY = Limit(
    64, "rounds", "ours: 320 steps show how much a value varies, and forget what a job was like long ago"
)
MIN_HISTORY = Limit(
    6, "rounds", "ours: with fewer there are not even four means of three rounds to take a deviation from"
)
PEERS_SHARE = Limit(
    0.05, "share", "ours: of the peers' work; a rank that is 10 % slow has room for noise on both sides"
)
EARLY_SHARE = Limit(
    0.08, "share", "ours: of the peers' work, where there is too little to know the noise from yet"
)
PAST_SHARE = Limit(0.07, "share", "ours: of the stage's own past; what all ranks do together varies more")
STAGE_SHARE = Limit(
    0.10,
    "share",
    "ours: of the other stages' work; stages are never quite even, because of embedding and output layer",
)
STAGE_WINDOW = Limit(4, "rounds in a row", "ours: one more than for a rank, as it is not urgent")
STAGE_ROUNDS = Limit(
    8, "rounds", "ours: an uneven split is there from the start; what comes later is a slow rank"
)
OVER = Limit(0.5, "times", "ours: of the share above, so that a rank at the limit does not come and go")
ITERATION_SHARE = Limit(0.02, "share", "ours: what costs the iteration less is not worth a line")
SIGNIFICANCE = Limit(
    5.5,
    "standard deviations",
    "benchmarks/bench_ranks.py: no alarm in 2 million comparisons (1000 ranks, 10 000 steps)",
)
OWN_SIGNIFICANCE = Limit(
    4.5,
    "standard deviations",
    "benchmarks/bench_ranks.py: no alarm either; lower, as the noise of few values is taken to be greater",
)
ENOUGH_GROUPS = Limit(
    5, "groups", "ours: of fewer, one slow one is too large a part to take the noise from how they differ now"
)
RANGE_OF_THREE = Limit(
    2.5,
    "times",
    "three normally distributed values: their range is 1.69 deviations, their median's own deviation 0.67",
)
MAX_NAMED = Limit(64, "ranks", "ours: a record, and the line of text made of it, stay short in a large job")
