"""What an option is, as a row of a table, and the parsers of options' values."""
