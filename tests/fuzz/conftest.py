"""The generator and the runner are a program (`run.py`), not tests."""

collect_ignore = ["cases.py", "damage.py", "models.py", "run.py", "tables.py"]
