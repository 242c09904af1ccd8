"""A toy fifth instrument: it counts calls. `test_new_instrument.py` copies it into the package as `toy`."""
