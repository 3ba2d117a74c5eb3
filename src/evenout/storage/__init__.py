"""Plain data in files: what a model file may hold, written and read back with every bound checked."""
