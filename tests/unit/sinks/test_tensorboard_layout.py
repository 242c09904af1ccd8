"""The layout, read by TensorBoard's own plugin from the sink's file."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin

from flagscale_perf.sinks.tensorboard import TensorBoardSink
from flagscale_perf.spine.figures import Rows
from flagscale_perf.training.figures import TABLE
from tests.fakes import make_context, make_header, make_interval

TAGS = Rows(TABLE, make_header()).curves(make_interval())


def test_tensorboards_plugin_finds_pages_whose_charts_match_the_tags(tmp_path: Path) -> None:
    sink = TensorBoardSink(make_context(make_header(), tmp_path, print))
    sink.write(make_interval())
    sink.flush()
    sink.close()
    runs = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    runs.Reload()
    context = TBContext(data_provider=MultiplexerDataProvider(runs, str(tmp_path)), multiplexer=runs)
    layout = json.loads(CustomScalarsPlugin(context).layout_impl(RequestContext(), ""))
    assert [category["title"] for category in layout["category"]] == list(TABLE.charts())
    (charts,) = [category["chart"] for category in layout["category"] if category["title"] == "Speed"]
    (shares,) = [chart["multiline"]["tag"] for chart in charts if chart["title"] == "MFU and HFU"]
    assert [[tag for tag in sorted(TAGS) if re.match(pattern, tag)] for pattern in shares] == [
        ["performance/mfu"],
        ["performance/hfu"],
    ]
