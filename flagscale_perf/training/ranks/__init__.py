"""The other ranks of a training: how their steps are gathered, laid side by side and judged."""
