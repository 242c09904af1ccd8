"""One destination a file."""
