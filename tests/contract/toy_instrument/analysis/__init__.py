"""Reports about calls."""
