"""The spine: records, ring, clock, windows, codec. Standard library only."""
