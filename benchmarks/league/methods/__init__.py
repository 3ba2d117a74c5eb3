"""One file for each competitor; each has a ``METHOD``."""
