"""Run files in, data out. No rendering."""
