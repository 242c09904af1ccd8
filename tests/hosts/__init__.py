"""The hosts of today: every tree that is given, through one table of real runs (`make test-hosts`)."""
