"""Takes records from the ring to the run file and to every view of it."""
