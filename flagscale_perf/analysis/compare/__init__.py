"""Two sets of runs compared, with the uncertainty of the difference."""
