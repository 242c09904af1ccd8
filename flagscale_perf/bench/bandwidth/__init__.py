"""What memory, links and collectives move in a second."""
