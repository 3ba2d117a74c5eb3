"""What comes in, cleaned once at the door: groups, rows, parameters, tables and files."""
