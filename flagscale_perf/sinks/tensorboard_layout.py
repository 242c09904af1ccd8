"""TensorBoard's page "Custom Scalars": how it groups the curves; written into each event file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


def layout_summary(pages: Mapping[str, Mapping[str, Sequence[str]]]) -> Any:
    """Page to chart to tags, as the `Summary` of an event. Raises ImportError without tensorboard."""
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2
    from tensorboard.plugins.custom_scalar import layout_pb2, metadata

    layout = layout_pb2.Layout()
    for page, charts in pages.items():
        category = layout.category.add(title=page)
        for title, tags in charts.items():
            category.chart.add(title=title).multiline.tag.extend(f"^{re.escape(tag)}$" for tag in tags)
    content = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[layout.SerializeToString()])
    content.tensor_shape.SetInParent()  # one string, not a list of them
    value = summary_pb2.Summary.Value(
        tag=metadata.CONFIG_SUMMARY_TAG, metadata=metadata.create_summary_metadata(), tensor=content
    )
    return summary_pb2.Summary(value=[value])
