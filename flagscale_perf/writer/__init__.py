"""From the ring to the run file and everything it is shown as."""
