"""``python -m evenout``: the command line."""

from evenout.cli import main

main(prog_name="evenout")
