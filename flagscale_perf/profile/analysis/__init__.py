"""What a profile says, from its run file."""
