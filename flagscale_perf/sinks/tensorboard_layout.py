"""How TensorBoard's page "Custom Scalars" groups the curves; it is written into each event file."""

from __future__ import annotations

import re
from typing import Any

from flagscale_perf.training.phases import GROUPS, PHASES

# Page -> chart -> the tags in it, as `scalars_of` has them.
PAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "Speed": {
        "TFLOP/s of one device": ("performance/tflops_per_gpu",),
        "TFLOP/s together": ("performance/tflops_total",),
        "MFU and HFU": ("performance/mfu", "performance/hfu"),
        "Tokens a second": ("performance/tokens_per_second",),
        "Samples a second": ("performance/samples_per_second",),
    },
    "Time": {
        "Iteration (ms)": ("time/iteration_ms", "time/train_step_ms", "time/device_ms"),
        "Evaluation and checkpoints (ms)": ("time/eval_ms", "time/checkpoint_ms"),
        "Iterations without training": ("training/skipped_iterations",),
    },
    "Phases": {
        "All (ms)": tuple(f"phase/{phase}_ms" for phase in PHASES),
        "Forward and backward (ms)": ("phase/forward_ms", "phase/backward_ms"),
        "Communication (ms)": tuple(f"phase/{phase}_ms" for phase in GROUPS["Comm"]),
        "Optimizer (ms)": tuple(f"phase/{phase}_ms" for phase in GROUPS["Optim"]),
        "Waiting for pipeline stages (ms)": (
            "phase/pipeline_recv_wait_ms",
            "phase/bubble_ms",
            "phase/imbalance_ms",
        ),
    },
    "Memory": {
        "Memory (GB)": ("memory/current_gb", "memory/peak_gb", "memory/reserved_gb"),
        "Fragmentation": ("memory/fragmentation",),
        "Allocator retries": ("memory/alloc_retries",),
    },
    "Hardware": {
        "Power (W)": ("hardware/power_w",),
        "Tokens per joule": ("hardware/tokens_per_joule",),
        "SM clock (MHz)": ("hardware/sm_clock_mhz",),
        "Temperature (°C)": ("hardware/temperature_c",),
    },
}


def layout_summary() -> Any:
    """The layout as the `Summary` of an event. Raises ImportError without the package tensorboard."""
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata

    layout = layout_pb2.Layout()
    for page, charts in PAGES.items():
        category = layout.category.add(title=page)
        for title, tags in charts.items():
            category.chart.add(title=title).multiline.tag.extend(f"^{re.escape(tag)}$" for tag in tags)
    content = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[layout.SerializeToString()])
    content.tensor_shape.SetInParent()  # one string, not a list of them
    value = summary_pb2.Summary.Value(
        tag=metadata.CONFIG_SUMMARY_TAG, metadata=metadata.create_summary_metadata(), tensor=content
    )
    return summary_pb2.Summary(value=[value])
