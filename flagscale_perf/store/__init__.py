"""The only room that opens a run file: its lines as records and columns, and what is kept beside it."""
