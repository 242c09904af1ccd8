"""Names of arms, figures and cases, as they appear in run files."""

from __future__ import annotations

SINGLE = "single"
ENGINE = "vllm"  # runs the model
TTFT, TPOT, LATENCY, DURATION = "ttft", "tpot", "latency", "duration"
THROUGHPUT, TOKENS = "throughput", "tokens"  # tokens a second: generated, and including the prompt's
MEMORY, PREEMPTIONS, FEW_PIECES = "memory", "preemptions", "in_few_pieces"
JOB, FLOW = "batch", "flow"  # one batch from begin to end, or more requests in flight all the time
