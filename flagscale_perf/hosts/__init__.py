"""The only place that names Megatron / FlagScale internals; every patch has its undo."""
