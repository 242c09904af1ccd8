"""What each finding is likely to come from, and what to change, by the host's own names."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.analysis.report import Change


@dataclass(frozen=True)
class Advice:
    """Likely causes and changes, the best first."""

    causes: list[str]
    changes: list[Change]


ADVICE: dict[str, Advice] = {
    "data_stall": Advice(
        ["too few loader processes", "slow or far storage", "tokenising or packing on the fly"],
        [
            Change(["--num-workers"], "raise it: more processes prepare batches ahead"),
            Change(["--data-cache-path"], "keep the dataset's index files on a local disk"),
            Change(
                ["--no-create-attention-mask-in-dataloader"],
                "do not make and copy masks that the attention kernel does not read",
            ),
        ],
    ),
    "straggler": Advice(
        [
            "a device with a lower clock",
            "another process on its host",
            "a bad link or disk",
            "more work for its data",
        ],
        [
            Change(
                [],
                "look at that device's clocks and errors (nvidia-smi -q -d PERFORMANCE,ECC), then leave its node out",
            ),
            Change(
                ["--manual-gc"],
                "if its pauses come and go: let all ranks collect garbage in the same iterations",
            ),
        ],
    ),
    "slow_stage": Advice(
        ["the embedding or the loss weighs as much as several layers", "layers are not divided evenly"],
        [
            Change(
                ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"],
                "give the slow stage fewer layers",
            ),
            Change(
                ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"],
                "count embedding and loss as a layer each",
            ),
            Change(["--pipeline-model-parallel-layout"], "say which layers each stage has"),
        ],
    ),
    "pipeline_bubble": Advice(
        ["few micro-batches for so many stages"],
        [
            Change(
                ["--num-layers-per-virtual-pipeline-stage"],
                "interleave v stages on each device: the bubble shrinks v times",
            ),
            Change(["--global-batch-size"], "raise it, if the optimisation allows it: more micro-batches"),
            Change(
                ["--micro-batch-size"], "lower it: more micro-batches, as long as the kernels stay efficient"
            ),
            Change(["--pipeline-model-parallel-size"], "lower it, if the model fits into fewer stages"),
        ],
    ),
    "exposed_comm": Advice(
        [
            "gradients and parameters are exchanged after computing instead of during it",
            "slow links between the nodes",
        ],
        [
            Change(["--overlap-grad-reduce"], "reduce gradients during the backward pass"),
            Change(
                ["--use-distributed-optimizer", "--overlap-param-gather"],
                "gather parameters during the forward pass",
            ),
            Change(
                ["--ddp-bucket-size"],
                "if both are on: change the size of a bucket, so that less is left for the end",
            ),
        ],
    ),
    "throttling": Advice(
        [
            "power limit below the device's default",
            "cooling: fans, filters, a hot place in the rack",
            "a power supply that failed",
        ],
        [
            Change(
                [],
                "look at the device (nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE); raise its power limit or leave its node out",
            )
        ],
    ),
    "memory_limit": Advice(
        ["activations of a large micro-batch", "optimizer state that is not divided over the ranks"],
        [
            Change(
                ["--recompute-granularity"],
                "selective: attention's activations are made again instead of kept",
            ),
            Change(
                ["--use-distributed-optimizer"], "divide the optimizer's state over the data-parallel ranks"
            ),
            Change(["--micro-batch-size"], "lower it"),
            Change(["--sequence-parallel"], "with tensor parallelism: divide the remaining activations, too"),
        ],
    ),
    "allocator_retries": Advice(
        ["fragmentation: lengths or batch sizes that vary", "memory at its limit"],
        [
            Change(["PYTORCH_CUDA_ALLOC_CONF"], "set it to expandable_segments:True in the environment"),
            Change(
                ["--empty-unused-memory-level"],
                "leave it at 0: freeing the cache in every step costs as much",
            ),
            Change(["--recompute-granularity"], "selective, if memory is at its limit as well"),
        ],
    ),
    "checkpoint": Advice(
        [
            "training waits until the last byte is on disk",
            "checkpoints more often than failures call for",
            "slow storage",
        ],
        [
            Change(["--async-save"], "write in the background (needs --ckpt-format torch_dist)"),
            Change(
                ["--save-interval"], "raise it; what a failure may cost against what each checkpoint does"
            ),
            Change(
                ["--ckpt-fully-parallel-save", "--ckpt-assume-constant-structure"],
                "let all data-parallel ranks write; plan once",
            ),
        ],
    ),
    "evaluation": Advice(
        ["many batches, often"],
        [Change(["--eval-interval"], "raise it"), Change(["--eval-iters"], "lower it")],
    ),
    "startup": Advice(
        [
            "building the dataset's index",
            "reading a checkpoint from slow storage",
            "compiling kernels",
            "many communicators",
        ],
        [
            Change(["--data-cache-path"], "build the dataset's index once, on storage that all nodes see"),
            Change(
                ["--ckpt-fully-parallel-load"], "let the ranks read parts of the checkpoint for each other"
            ),
            Change(["--no-load-optim"], "where the optimizer's state is not needed: do not read it"),
        ],
    ),
    "gc_pauses": Advice(
        [
            "Python collects garbage, on each rank at another time",
            "something else that the host does every so many steps",
        ],
        [
            Change(
                ["--manual-gc", "--manual-gc-interval"],
                "collect at fixed iterations, on all ranks together, every 100 or more",
            ),
            Change(["--log-interval"], "raise it, if the pauses fall on the iterations that are logged"),
        ],
    ),
    "jitter": Advice(
        [
            "a neighbour on the network or the file system",
            "other processes on the hosts",
            "batches of very different lengths",
        ],
        [
            Change(["--manual-gc"], "rule out garbage collection"),
            Change(["--num-workers"], "raise it, if the slow steps wait for data (see the phases)"),
            Change(
                ["--perf-breakdown"],
                "if there are no phases: switch them on to see in which one the slow steps are slow",
            ),
        ],
    ),
    "small_micro_batch": Advice(
        ["kernels too small for the device: launches and memory, not arithmetic, take the time"],
        [
            Change(["--micro-batch-size"], "double it, at the same --global-batch-size"),
            Change(
                ["--tensor-model-parallel-size"],
                "lower it, if the model fits: larger kernels, less communication",
            ),
        ],
    ),
    "full_recompute": Advice(
        ["recomputation was needed for an earlier size of the job"],
        [
            Change(["--recompute-granularity"], "selective instead of full"),
            Change(
                ["--recompute-method", "--recompute-num-layers"],
                "block, with as many layers recomputed as memory needs",
            ),
        ],
    ),
    "mfu_suspect": Advice(
        [
            "the peak is of another device or data type",
            "packed documents count as whole sequences",
            "layers that the FLOPs count does not know",
        ],
        [
            Change(["--perf-peak-tflops"], "set it to the dense peak of one device for this data type"),
            Change([], "compare the FLOPs with `flagscale-perf flops`"),
        ],
    ),
    "lost": Advice(
        [
            "overflows while the loss scale finds its level",
            "NaN or spikes in the loss",
            "iterations the host was told to skip",
        ],
        [
            Change(
                ["--initial-loss-scale", "--loss-scale-window"], "with fp16: begin lower, raise it less often"
            ),
            Change(["--bf16"], "where the device has it: no loss scale at all"),
            Change(["--lr-warmup-iters"], "longer, if the loss spikes in the beginning"),
        ],
    ),
    "idle": Advice(
        ["the run hung in an iteration that was never finished", "a process that took long to end"],
        [
            Change(
                ["--distributed-timeout-minutes"], "lower it, so that a rank that is gone ends the run sooner"
            )
        ],
    ),
}
