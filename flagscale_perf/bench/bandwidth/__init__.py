"""How many bytes per second memory, links and collectives move."""
