"""The reward worker: it asks a server of rewards, one call for the responses to each prompt. The lines that
record its calls are marked `# probe`.
"""

from __future__ import annotations

import msgpack
import torch
import workers
import zmq
from model import dense
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, register

from flagscale_perf.rpc.probe import Probe  # probe
from flagscale_perf.rpc.recording import RecordingOptions  # probe


class RewardWorker(workers.RewardWorker):
    """Scores responses by the server at `endpoint`; `group` of them belong to a prompt."""

    def __init__(self, endpoint: str, directory: str, group: int) -> None:
        super().__init__()
        self._group = group
        self._slept_ns: list[int] = []
        log = f"{directory}/zmq_performance.log"
        self._probe = Probe.start(endpoint, RecordingOptions(directory, log))  # probe
        self._context = zmq.Context()
        self._socket = self._probe.wrap(self._context.socket(zmq.REQ))  # probe
        self._socket.linger = 0
        self._socket.connect(endpoint)

    @register(dispatch_mode=workers.BY_RANK)
    def compute_score(self, batch: TensorDict) -> TensorDict:
        """Responses to rewards."""
        with self.work():
            responses, scores, slept_ns = dense(batch["responses"]), list[float](), 0
            self._call("Health")
            for group in responses.split(self._group):
                reply = self._call("Score", responses=group.tolist())
                scores += reply["scores"]
                slept_ns += reply["slept_ns"]
            self._slept_ns.append(slept_ns)
            return TensorDict({"rewards": torch.tensor(scores).unsqueeze(1)}, batch_size=len(scores))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def finish(self) -> list[int]:
        """Lets the server stop; returns how long it slept for each batch, in ns."""
        self._probe.close()  # probe
        self._ask("Stop")
        self._context.destroy()
        return self._slept_ns

    def _call(self, method: str, **arguments: object) -> dict:
        with self._probe.call(method):  # probe
            return self._ask(method, **arguments)

    def _ask(self, method: str, **arguments: object) -> dict:
        self._socket.send(msgpack.packb({"method": method, **arguments}))
        return msgpack.unpackb(self._socket.recv())
