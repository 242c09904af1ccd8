"""A server that answers what is asked of it, and says how it was started. A pipeline of 2 ends with an
assertion, as vLLM's on a CPU does; one of 3 comes up, and ends at the first request.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

METRICS = """\
vllm:num_preemptions_total{engine="0"} %d.0
vllm:cache_config_info{block_size="16",kv_cache_size_tokens="4096",num_gpu_blocks="256"} 1.0
"""


def main() -> None:
    parser = ArgumentParser()
    for name in ("--host", "--port", "--tensor-parallel-size", "--pipeline-parallel-size", "--max-model-len"):
        parser.add_argument(name)
    found, rest = parser.parse_known_args()
    tensor, pipeline = int(found.tensor_parallel_size), int(found.pipeline_parallel_size)
    if pipeline == 2:
        print("INFO 11-23 01:00:00 [engine.py:1] starting", flush=True)
        print("(Worker pid=1) ERROR 11-23 01:00:00 [core.py:1] AssertionError: no tensors", flush=True)
        print("RuntimeError: Engine core failed. See root cause above.", flush=True)
        sys.exit(1)
    about = {
        "tensor": tensor,
        "options": rest,
        "longest": found.max_model_len,
        "environment": dict(os.environ),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = {
                "/health": "",
                "/about": json.dumps(about),
                "/metrics": METRICS % (0 if tensor == 1 else 3),
            }.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write((body or "").encode())
            if self.path == "/about" and pipeline == 3:
                print("ValueError: a request has killed it", flush=True)
                os._exit(1)

        def log_message(self, *_: object) -> None:
            pass

    ThreadingHTTPServer((found.host, int(found.port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
