"""A walk through the README: its commands, typed in fresh Python environments that have the wheel."""
