"""Imported first by the programs here: without a package that calls need they end in two lines."""

import sys
from importlib import import_module

from flagscale_perf.spine.packages import missing

for module in ("zmq", "msgspec", "msgpack"):
    try:
        import_module(module)
    except ImportError as error:
        print(missing(module, error, sys.argv[0].rpartition("/")[2]), file=sys.stderr)
        sys.exit(2)
