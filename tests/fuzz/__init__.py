"""Run files as an accident or an enemy may leave them, through every command that reads one."""
