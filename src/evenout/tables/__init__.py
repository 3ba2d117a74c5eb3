"""Tables and files, cleaned once at the door: rows, columns, parameters, encoder."""
