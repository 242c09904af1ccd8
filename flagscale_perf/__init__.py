"""flagscale_perf: know where every GPU-second of a Megatron / FlagScale run goes."""

__version__ = "0.1.0"
