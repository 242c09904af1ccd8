"""The only place that names Megatron, FlagScale or Megatron-Bridge internals; every patch has its undo."""
