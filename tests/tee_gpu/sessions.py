"""Sessions of a split model."""

from __future__ import annotations

from typing import Any

from split_inference.traffic import ModelSizes, Pass, pass_traffic

from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.records import CallRecord
from tests.rpc_sessions import llama_calls

LLAMA_1B = ModelSizes(16, 2048, 32, 8, 64, 8192, 128256)
SMALL = ModelSizes(4, 64, 4, 2, 16, 128, 512)
PREFILL = Pass()


def calls_of(run: Pass = PREFILL, model: ModelSizes = LLAMA_1B, **given: Any) -> list[CallRecord]:
    """Of one pass, as `llama_calls` has their times."""
    dtype = DType.FLOAT32 if run.item_bytes == 4 else DType.BFLOAT16
    return llama_calls(pass_traffic(model, run), dtype=dtype, **given)
