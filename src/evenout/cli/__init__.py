"""The command line: the only part that prints or exits."""

from evenout.cli.commands import main

__all__ = ["main"]
