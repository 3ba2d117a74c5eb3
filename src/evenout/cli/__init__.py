"""The command line: the only part that prints or exits."""

import sys

import click

import evenout
from evenout.cli.messages import Commands

_EXAMPLES = """
\b
Examples:
  evenout fit credit
      try it: fair scores for 30,000 card clients, bundled
  evenout fit people.csv --sensitive sex --id person --out fair
      a fair model of your own file; scores, model and report go to fair
  evenout score fair/model.skops new.csv --id person --out new-scores.csv
      score new rows; no group is needed any more
  evenout repair vendor.csv --score risk --sensitive sex --out repaired
      even out a score that somebody else has made
  evenout explain fair/model.skops new.csv --id person --person p017
      why this person stands out, and what fairness changed
  evenout audit new-scores.csv --score fair_score --sensitive sex
      any score, ours or not: gaps between groups, with intervals and tests
  evenout watch new/ --state watch.skops --score fair_score --sensitive sex
      batch after batch, whether a gap has come; an alarm if one has
  evenout plan fair/model.skops new.csv --id person --budget 200 --out p.csv
      whom to look into next, some by chance; then estimate what was missed
  evenout app people.csv
      the same without a command line: a page on this machine
  evenout reproduce
      the paper's experiments, with a verdict on every claim

\b
Each command explains itself: evenout fit --help

\b
Exit status: 0 done, 2 wrong input (one line says what), 1 interrupted.
Results appear whole or not at all; nothing is sent anywhere.

\b
Completion of commands and options by the tab key:
  ~/.bashrc                   eval "$(_EVENOUT_COMPLETE=bash_source evenout)"
  ~/.zshrc                    eval "$(_EVENOUT_COMPLETE=zsh_source evenout)"
  ~/.config/fish/config.fish  _EVENOUT_COMPLETE=fish_source evenout | source
"""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EXAMPLES,
)
@click.version_option(evenout.__version__, prog_name="evenout")
def main() -> None:
    """Fair outlier detection for tables.

    evenout scores rows by how outlying they are, evens out protected groups in that score, and shows what the
    fairness costs. Scores come from many detectors, without labels unless --learn says so. The group is needed for
    fitting, never for scoring.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show ends no run
