"""A session summed up as it goes: its summary, its metrics, how sinks show it."""
