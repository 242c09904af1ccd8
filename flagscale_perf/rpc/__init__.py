"""The second instrument: calls between two processes. Every call leaves one record, whoever carried it."""
