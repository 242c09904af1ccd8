#!/usr/bin/env bash
# protobuf 7.36.2 (its default C implementation, upb), with Perfetto's package 0.59.1: a message that is filled, written and cleared again and
# again keeps the memory of everything that ever was in it; Clear() frees nothing as long as the message lives. A writer of long traces does this.
#
# Guess, as a first writer was designed: Clear() makes room for the next batch, so that memory stays what one batch takes.
# Seen: 6,000 batches of 256 packets in one message that is cleared in between: about 200 MB more, growing with the batches. A new message for each batch: a few MB.
#
# Installs perfetto and protobuf into a temporary directory. Exit status 0: as stated here; 1: it has changed.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check perfetto==0.59.1 protobuf==7.36.2
cat > "$work/write.py" <<'PYTHON'
import resource
import sys

from google.protobuf.internal import api_implementation
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

BATCHES, PACKETS = 6000, 256
is_cleared = sys.argv[1] == "cleared"


def used_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


trace, written, before = Trace(), 0, used_mb()
for _ in range(BATCHES):
    for number in range(PACKETS):
        trace.packet.add(timestamp=number, trusted_packet_sequence_id=1)
    written += len(trace.SerializeToString())
    if is_cleared:
        trace.Clear()
    else:
        trace = Trace()
print(f"{sys.argv[1]}, {api_implementation.Type()}: {used_mb() - before:.0f} MB more for {written / 1e6:.1f} MB written")
sys.exit((used_mb() - before > 100) is not is_cleared)
PYTHON
for how in cleared new; do "$work/venv/bin/python" "$work/write.py" "$how"; done
