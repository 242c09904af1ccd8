"""The only place that names TransferQueue's, verl's and Ray's internals; every patch has its undo."""
