"""A walk through README and docs: their commands, typed in fresh Python environments that have the wheel."""
