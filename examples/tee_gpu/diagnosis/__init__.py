"""What calls cost on this machine: measured, predicted, and what a session's calls show of it."""
