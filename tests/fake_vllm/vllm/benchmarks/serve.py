"""`bench serve` whose times follow from the sizes. On `tensor` ranks a prompt of n tokens takes n / tensor
ms, and each further token 4 + 2 / tensor ms; a batch takes as long as one request.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

OPTIONS = (
    "--backend",
    "--host",
    "--model",
    "--tokenizer",
    "--dataset-name",
    "--temperature",
    "--percentile-metrics",
    "--metric-percentiles",
    "--result-dir",
    "--result-filename",
)
NUMBERS = (
    "--port",
    "--random-input-len",
    "--random-output-len",
    "--num-prompts",
    "--max-concurrency",
    "--num-warmups",
    "--seed",
)
FLAGS = "--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm"
FAILS = 13  # a prompt of so many tokens


def add_cli_args(parser: ArgumentParser) -> None:
    for name in OPTIONS:
        parser.add_argument(name)
    for name in NUMBERS:
        parser.add_argument(name, type=int)
    for name in FLAGS:
        parser.add_argument(name, action="store_true")


def main(args: Namespace) -> None:
    connection = HTTPConnection(args.host, args.port, timeout=10)
    connection.request("GET", "/about")
    tensor = json.loads(connection.getresponse().read())["tensor"]
    connection.close()
    prompt, output, requests = args.random_input_len, args.random_output_len, args.num_prompts
    first, each = prompt / tensor / 1000, (4 + 2 / tensor) / 1000
    whole = first + (output - 1) * each
    waves = -(-requests // args.max_concurrency)
    failed = prompt == FAILS
    result: dict[str, Any] = {
        "completed": requests - failed,
        "duration": waves * whole,
        "total_input_tokens": requests * prompt,
        "output_lens": [output] * requests,
        "ttfts": [first] * requests,
        "latencies": [whole] * requests,
        "itls": [[each] * (output - 1)] * requests,
        "errors": ["a trace\nBad Request"] * failed + [""] * (requests - failed),
    }
    Path(args.result_dir, args.result_filename).write_text(json.dumps(result))
