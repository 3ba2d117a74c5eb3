"""The commands with their options and help; what each one does is loaded when it runs."""

import ipaddress
import sys
from pathlib import Path
from typing import Any

import click

import evenout
from evenout.cli.messages import Commands, plain_messages, progress
from evenout.cli.options import (
    A_PATH,
    FiniteRange,
    Sectioned,
    column_options,
    columns_option,
    common_options,
    engine_options,
    estimator_options,
    finding_options,
    id_option,
    json_option,
    new_groups_option,
    out_option,
    read_names,
    reasons_option,
    score_option,
    sensitive_option,
    split_names,
    trust_option,
)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""
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
""",
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


@main.command(
    cls=Sectioned,
    short_help="Fit a fair model on a file or a bundled data set.",
    epilog="""
\b
Examples:
  evenout fit credit
      fair scores for the bundled card clients, by education
  evenout fit credit --sensitive age,sex
      by groups of age and sex together
  evenout fit people.csv --sensitive sex --id person --drop notes --out fair
      your own file
  evenout fit people.parquet --sensitive sex --flag-rate-ratio 0.9
      until each group is flagged at least 0.9 times as often as any other
  evenout fit visits.csv --sensitive sex --clusters person --contamination 200
      several rows of one person, and time to look at 200 rows
  evenout fit people.csv --sensitive sex --given product,region
      only differences among people with the same product and region count
  evenout fit a.csv --sensitive age,sex --continuous age --cross both
      age as a number and sex, each by itself and crossed
  evenout fit a.csv --sensitive sex --label x --fairness equal_false_alarms
      people who are known to be innocent score alike
  evenout fit people.csv --sensitive sex --confidence 0.95
      until 80% of the gap is gone on unseen rows with that confidence
  evenout fit people.csv --sensitive sex --reasons 3
      three reasons in words for each person who is flagged
  evenout fit people.csv.gz --sensitive sex --label fraud --json
      also AUC against known cases; figures as JSON
""",
)
@click.argument("data")
@sensitive_option
@click.option("--probable", is_flag=True, help="The protected columns are probabilities, one column for each group.")
@out_option
@id_option
@click.option(
    "--label", metavar="COL",
    help="Known outliers (1) and inliers (0): for evaluation, for notions of fairness that need them, or with --learn.",
)  # fmt: skip
@columns_option(
    "--given", help="What may justify a difference: compare rows that are alike in these columns. They stay features."
)
@click.option(
    "--clusters", metavar="COL", help="Rows of one value here belong together, such as several of one person."
)
@column_options
@click.option(
    "--show-small-cells", is_flag=True,
    help="Report: also show counts of fewer than 10 people, and the group beside each id.",
)  # fmt: skip
@click.option(
    "--updatable", is_flag=True,
    help="Keep the group of every row in model.skops, for updates in Python, other flag rates, and 'evenout watch'.",
)  # fmt: skip
@reasons_option
@estimator_options()
@engine_options
@common_options
def fit(**options: Any) -> None:
    """Fit a fair outlier ensemble on DATA, and show what fairness costs.

    DATA is a file (.csv, .csv.gz or .parquet), a folder or a pattern of Parquet files ("data/*.parquet"), of any size,
    or a bundled data set: communities, german, annthyroid, cardio, vowels, breastw, mammography, pima or credit. Files
    and folders need --sensitive. Every column that has no role is a feature: text is one-hot encoded, gaps are filled
    (numbers by the median, text as "missing"), dates become days, month and weekday. Columns of one value, and those
    that only tell rows apart, are left out. What was done with each column is printed. The protected columns, the
    label, the id and the clusters are never features.

    \b
    DIR gets
      scores.csv    id, group, base and fair score, their ranks, flagged or not;
                    with --reasons, why
      model.skops   the model, for "evenout score"; it holds feature values: keep
                    it as safe as the data
      summary.json  settings, versions, hashes, bias, flag rates, weights
      report.html   a page with a slider over every trade-off (extra: pages)
    Over a folder: scores/*.parquet in place of scores.csv, and no report;
    reasons of flagged rows are in scores/reasons-*.parquet.

    In CSV, text that a spreadsheet would run as a formula has a single quote put before it; to undo, take one leading
    quote away before = + - @ tab or line break.
    """  # noqa: D301
    with plain_messages() as warned:
        from evenout.cli.fit import fit_data

        fit_data(warned, **options)


@main.command(
    short_help="Score new rows with a fitted model.",
    epilog="""
\b
Examples:
  evenout score evenout-out/model.skops new.csv --out new-scores.csv
  evenout score model.skops new.parquet --id person --out new-scores.csv
  evenout score model.skops new.csv --reasons 3 --out new-scores.csv
""",
)
@click.argument("model", type=A_PATH)
@click.argument("file", type=A_PATH)
@click.option("--out", required=True, type=A_PATH, metavar="FILE", help="The scores, as .csv; for folders, a folder.")
@id_option
@score_option
@new_groups_option
@reasons_option
@trust_option
@estimator_options("device")
@engine_options
@common_options
def score(**options: Any) -> None:
    """Score the rows of FILE (.csv, .csv.gz or .parquet) with MODEL, of "evenout fit" or "evenout repair".

    No group is needed: the fairness is in the model, unless it was made by "repair --aware". A repair needs the score
    that it repairs. FILE must have the columns that served as features; others are
    ignored. Rows are encoded as in fitting; text values that did not occur there are scored as none of the known ones,
    and counted in a note.

    The result has the columns id, fair_score (higher = more outlying) and flagged (1 or 0, at the threshold of the
    training rows); with --reasons also what fairness changed for the row (change: flagged, entered, left or not
    flagged) and, if it is flagged before or after fairness, why (reason_1, ...). A model file is data alone: loading it
    runs no code, and a damaged or foreign file is refused.

    FILE may be a folder or a pattern of Parquet files ("data/*.parquet"), of any size; --out is then a folder,
    and reasons of flagged rows are in reasons-*.parquet.
    """
    with plain_messages():
        from evenout.cli.score import score_data

        score_data(**options)


@main.command(
    short_help="Even out a finished score, of any model.",
    epilog="""
\b
Examples:
  evenout repair vendor.csv --score risk --sensitive sex --id person --out repaired
      the vendor's score, evened out; new rows need no group
  evenout repair vendor.csv --score risk --sensitive sex --flag-rate-ratio 0.9
      until each group is flagged at least 0.9 times as often as any other
  evenout repair vendor.csv --score risk --sensitive sex --aware
      by the group itself, where the law allows that
  evenout score repaired/model.skops new.csv --id person --out new-scores.csv
      repair the scores of new rows
""",
)
@click.argument("file", type=A_PATH)
@click.option("--score", required=True, metavar="COL", help="Column with the score, higher = more outlying.")
@columns_option("--sensitive", required=True, help="The protected group; several columns are crossed.")
@click.option(
    "--aware", is_flag=True,
    help="Use the group of each row, of new ones too: all groups get the same distribution of scores, or with "
    "--bias-reduction go that far towards it.",
)  # fmt: skip
@out_option
@id_option
@click.option("--label", metavar="COL", help="Known outliers (1) and inliers (0), for evaluation or for --fairness.")
@columns_option("--given", help="What may justify a difference: compare rows that are alike in these columns.")
@column_options
@estimator_options(
    "bias_reduction", "flag_rate_ratio", "confidence", "contamination", "fairness", "groups", "random_state"
)  # fmt: skip
@common_options
def repair(**options: Any) -> None:
    """Even out the score in FILE (.csv, .csv.gz or .parquet) between groups, whatever model it comes from.

    By default no group is needed for new rows: a multiple of how much a row looks like each group, by its other
    columns, is taken off its score. That is the smallest change that does it, and who looks like a member of a group is
    treated a little like one. With --aware the group of each row is used instead, which some laws forbid.

    DIR gets scores.csv, model.skops (for "evenout score") and summary.json.
    """
    with plain_messages():
        from evenout.cli.fit import repair_score

        repair_score(**options)


@main.command(
    short_help="Say why a row stands out, and what fairness changed.",
    epilog="""
\b
Examples:
  evenout explain evenout-out/model.skops people.csv --person 17
      row 17 of the file
  evenout explain model.skops people.csv --id person --person p017 --person p020
      two people by their ids
  evenout explain model.skops people.csv --person 17 --reasons 5 --baseline typical
      five reasons, beside the typical row of all
""",
)
@click.argument("model", type=A_PATH)
@click.argument("file", type=A_PATH)
@id_option
@click.option(
    "--person", "people", required=True, multiple=True, metavar="ID",
    help="Whom to explain, by the value of --id. Repeatable.",
)  # fmt: skip
@click.option("--reasons", type=click.IntRange(1, 20), default=3, show_default=True, metavar="N", help="How many.")
@click.option(
    "--baseline", type=click.Choice(["alike", "typical"]), default="alike", show_default=True,
    help="Hold the row against those most like it, or against the typical row of all.",
)  # fmt: skip
@new_groups_option
@trust_option
@common_options
def explain(**options: Any) -> None:
    """Say why a row of FILE (.csv, .csv.gz or .parquet) stands out, by MODEL, the model.skops of "evenout fit".

    The score is split over the columns of the file: what each adds, beside a typical row, before and after fairness.
    The parts of all columns add up. A value that is common by itself is named with the column that makes it rare. No
    other row of the file, and nothing of the training table, is needed.
    """
    with plain_messages():
        from evenout.cli.score import explain_people

        explain_people(**options)


@main.command(
    short_help="Measure any score for gaps between groups.",
    epilog="""
\b
Examples:
  evenout audit scores.csv --score fair_score --sensitive group
  evenout audit batch.csv --score risk --sensitive sex,age --label fraud --out audit.csv
  evenout audit june.csv --score risk --sensitive sex --given income --baseline may.csv
  evenout audit june.csv --score decile --sensitive race --threshold 8
  evenout audit june.csv --score risk --sensitive sex,age --as hiring --as lending --page audit.html
  evenout audit a.csv --score risk --sensitive age,sex --continuous age
""",
)
@click.argument("file", type=A_PATH)
@click.option("--score", required=True, metavar="COL", help="Column with the scores, higher = more outlying.")
@columns_option("--sensitive", help="Protected columns.", required=True, callback=read_names)
@click.option("--probable", is_flag=True, help="The protected columns are probabilities, one for each group.")
@click.option("--sufficient", is_flag=True, help="With --probable: they know all that the score uses.")
@click.option("--label", metavar="COL", help="Column with known labels, 1 = outlier, 0 = inlier, empty = unknown.")
@click.option(
    "--label-propensity", metavar="CHANCE|COL",
    help="The chance that a row was labelled: a number for a random draw, or a column.",
)  # fmt: skip
@columns_option(
    "--features", help="Features: which go with the gap, and are similar rows scored alike?", callback=read_names
)
@columns_option(
    "--given", help="Columns that may justify a difference: gaps among rows alike in them.", callback=read_names
)
@click.option(
    "--clusters", metavar="COL", help="Rows with the same value belong together, such as several rows of one person."
)
@click.option("--sample-weight", metavar="COL", help="How many people each row stands for, as in a survey.")
@click.option("--threshold", type=float, metavar="NUMBER", help="Flag this score and more, instead of a share.")
@click.option("--flagged", metavar="COL", help="Column with 1 for the rows that are flagged, instead of a share.")
@click.option("--baseline", type=A_PATH, metavar="FILE", help="An earlier batch with the same columns to compare with.")
@click.option(
    "--confidence", type=FiniteRange(0.5, 1, max_open=True), default=0.95, show_default=True, metavar="SHARE",
    help="Confidence of the intervals.",
)  # fmt: skip
@click.option(
    "--resamples", type=click.IntRange(0, 1_000_000), default=1000, show_default=True, metavar="NUMBER",
    help="Bootstrap resamples and permutations; 0 for none.",
)  # fmt: skip
@estimator_options("contamination", "length_scale", "groups", "random_state")
@click.option(
    "--as", "tables", type=click.Choice(["hiring", "lending", "strata"]), multiple=True,
    help="A table in a shape that supervisors ask for; strata needs --given. Repeatable.",
)  # fmt: skip
@click.option(
    "--flag-means", type=click.Choice(["bad", "good"]), default="bad", show_default=True,
    help="Tables: whether being flagged is the harm or the benefit.",
)  # fmt: skip
@click.option(
    "--reference", multiple=True, metavar="GROUP",
    help="Tables: compare with this group, one of an attribute. Repeatable.  [default: the best off]",
)  # fmt: skip
@click.option("--page", type=A_PATH, metavar="FILE.html", help="Write one page to hand over, with the tables of --as.")
@click.option("--out", type=A_PATH, metavar="FILE.csv", help="Write every measure, or the tables, to this file.")
@finding_options
def audit(**options: Any) -> None:
    """Audit the scores in FILE (.csv, .csv.gz or .parquet), ours or not, for gaps between groups.

    Group sizes and means, how evenly groups are flagged and spared, gaps free of scale and of sampling noise, and with
    labels the rates of error by group; with intervals, and with tests that are corrected for how many there are.
    """
    with plain_messages():
        from evenout.cli.audit import audit_scores

        findings = audit_scores(**options)
    click.echo(findings)


ALARM = 3  # exit status


class _Tolerance(FiniteRange):
    """A gap, or the word "start"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.FloatRange.convert`."""
        return value if value == "start" else super().convert(value, param, ctx)


@main.command(
    short_help="Watch a score in use, batch after batch.",
    epilog="""
\b
Examples:
  evenout watch batches/ --state watch.skops --score fair_score --sensitive sex --model fair/model.skops
      begin, and count every file in the folder; run it again when there are new ones
  evenout watch june.csv --state watch.skops --score risk --sensitive sex,age --person id --start may.csv
      a score from elsewhere: June's gaps are held to May's; the same people may come again
  evenout watch july.csv --state watch.skops
      go on: columns and promises are kept in the file
  evenout watch --state watch.skops --merge north.skops --merge south.skops
      take in what other machines have counted

\b
Exit status: 0 no alarm, 3 alarm, 2 wrong input (one line says what), 1 interrupted.
""",
)
@click.argument("files", type=A_PATH, nargs=-1)
@click.option("--state", required=True, type=A_PATH, metavar="FILE", help="What has been counted so far.")
@click.option(
    "--score", callback=read_names, multiple=True, metavar="COL", help="Column of scores, higher = more outlying."
)
@columns_option("--sensitive", help="Protected columns.", callback=read_names)
@click.option(
    "--person", callback=read_names, multiple=True, metavar="COL",
    help="Column that says who a row is of: needed where the same people come again. No person is kept.",
)  # fmt: skip
@click.option(
    "--model", type=A_PATH, metavar="FILE",
    help="Begin with what this model, from evenout fit, promised; --score has its fair scores.",
)  # fmt: skip
@click.option("--start", type=A_PATH, metavar="FILE", help="Begin with these rows, and hold later ones to their gaps.")
@click.option(
    "--tolerance", type=_Tolerance(0, 1), metavar="GAP",
    help='Promised gap of mean ranks between any two groups, without --model; or "start": no larger ones than the rows '
    "to begin with show, up to sampling noise.  [default: start with --start, else 0]",
)  # fmt: skip
@click.option(
    "--flag-rate-ratio", type=FiniteRange(0, 1, min_open=True), metavar="RATIO",
    help="Promised as well, without --model: the lowest flag rate of a group as a share of the highest.",
)  # fmt: skip
@click.option(
    "--false-alarms", type=FiniteRange(0, 0.5, min_open=True), metavar="SHARE",
    help="Chance that there ever is an alarm while promises are kept.  [default: 0.05]",
)  # fmt: skip
@estimator_options("contamination", "unknown")
@click.option(
    "--merge", type=A_PATH, multiple=True, metavar="FILE", help="State of another machine to take in; repeatable."
)
@click.option("--out", type=A_PATH, metavar="FILE.csv", help="Write the history, one row per batch and group.")
@finding_options
def watch(**options: Any) -> None:
    """Count batches of scores in use, and say whether what was promised is kept.

    FILES are batches (.csv, .csv.gz or .parquet), or folders of them, taken in the order of their names. Each is
    counted once, by its name, and the state is written after each. Whatever happens in between: run it again.

    Any two groups are compared within each batch, by the ranks of their scores, so that a drift of all scores or
    another mix of groups is no alarm; both are told apart. One may look as often as one likes: the false-alarm rate is
    for all time, if every batch has new people or --person says who they are.

    Columns and promises are fixed when a watch begins, with --model, with --start, or with the first file of all, and
    are kept in the state.
    """
    with plain_messages():
        from evenout.cli.audit import watch_batches

        findings, alarm = watch_batches(**options)
    click.echo(findings)
    click.get_current_context().exit(ALARM if alarm else 0)


@main.command(
    short_help="List whom to look into next, some of them by chance.",
    epilog="""
\b
Examples:
  evenout plan fair/model.skops week.csv --id person --budget 200 --explore 0.1 --out plan.csv
      180 people by score, 20 by chance; plan.csv has them first
  evenout estimate plan.csv --outcome fraud --sensitive sex
      once the column fraud has been filled in
""",
)
@click.argument("model", type=A_PATH)
@click.argument("file", type=A_PATH)
@click.option("--budget", type=click.IntRange(1), default=200, show_default=True, metavar="ROWS", help="Looks in all.")
@click.option(
    "--explore", type=FiniteRange(0, 1), default=0.1, show_default=True, metavar="SHARE",
    help="Share of the looks that goes by chance; 0: none, and nothing can be known of those not looked into.",
)  # fmt: skip
@click.option("--out", required=True, type=A_PATH, metavar="FILE", help="The plan, as .csv.")
@id_option
@score_option
@columns_option("--sensitive", help="Groups: each gets its share of the looks by chance.")
@estimator_options("random_state")
@trust_option
@common_options
def plan(**options: Any) -> None:
    """Plan whom of FILE (.csv, .csv.gz or .parquet) to look into, by the scores of MODEL and by chance.

    The plan has the rows to look into first, the highest score on top, then all others with the probability that they
    had: "evenout estimate" needs every row. Fill outcomes in beside them, 1 for an outlier and 0 for none, and leave
    empty what has not come back. Columns of FILE that the model does not use, and that have at most 20 values, such as
    groups, are kept beside.
    """
    with plain_messages():
        from evenout.cli.score import plan_looks

        plan_looks(**options)


@main.command(
    short_help="Say what a plan's outcomes tell: found, missed, by group.",
    epilog="""
\b
Examples:
  evenout estimate plan.csv --outcome fraud --sensitive sex
      outcomes were written into plan.csv
  evenout estimate plan.csv --outcomes done.csv --outcome fraud --id person
      they are in a file of their own, by the ids of the plan
""",
)
@click.argument("plan_file", metavar="PLAN", type=A_PATH)
@click.option("--outcome", required=True, metavar="COL", help="Column with 1 for an outlier, 0 for none, or nothing.")
@click.option("--outcomes", "outcome_file", type=A_PATH, metavar="FILE", help="Read --outcome from here, by --id.")
@columns_option("--sensitive", help="Groups to compare: columns of PLAN, or of --people.")
@click.option(
    "--people", type=A_PATH, metavar="FILE", help="Read --sensitive from here, by --id: all rows planned for."
)
@click.option(
    "--id", "id_column", metavar="COL", default="id", show_default=True,
    help="Column of ids in --outcomes and --people.",
)  # fmt: skip
@click.option(
    "--confidence", type=FiniteRange(0.5, 0.999), default=0.95, show_default=True, metavar="SHARE",
    help="Of the intervals.",
)  # fmt: skip
@json_option
def estimate(**options: Any) -> None:
    """Estimate from the outcomes of PLAN, a file of "evenout plan", what its list found and missed.

    Precision of the list; recall, the share of all outliers that it found; how many it missed; false alarms, the share
    of inliers that were looked into; each for everybody and by group, with intervals that follow from the chances of
    the draw, and tests that all groups are alike. Outcomes that are missing have not come back: they are not 0.
    """
    with plain_messages():
        from evenout.cli.score import estimate_plan

        estimate_plan(**options)


@main.command(short_help="Open a local page, for people who do not program.")
@click.argument("file", type=A_PATH, required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="NUMBER", help="[default: any that is free]")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--no-browser", is_flag=True, help="Print the address alone.")
@click.option(
    "--max-size", type=click.IntRange(1), default=1000, show_default=True, metavar="MB", help="Largest file to take in."
)
def app(file: Path | None, port: int, host: str, no_browser: bool, max_size: int) -> None:
    """Open a page on this machine, with FILE (.csv, .csv.gz or .parquet) in it if one is named.

    From a table to an audit, a fair score, a repaired score or scores of new rows by clicks. The page shows the command
    that it runs, and what it writes is what that command writes. It needs the extra app.

    Nothing leaves the machine: the page listens on 127.0.0.1, its address holds a secret, and its files are in a
    private folder that is deleted when it ends (Ctrl-C).
    """
    with plain_messages():
        try:
            from evenout.app.server import serve
        except ImportError as missing:
            raise ImportError(f"app needs the extra app: pip install 'evenout[app]' ({missing})") from None
        try:
            local = ipaddress.ip_address(host).is_loopback
        except ValueError:
            local = host == "localhost"
        if not local:
            click.echo(
                f"Note: {host} can be reached from other machines, without encryption; whoever has the address with "
                "its secret can read what you bring. Leave --host out unless you know that network",
                err=True,
            )
        serve(file, host=host, port=port, browser=not no_browser, most_bytes=max_size * 10**6, tell=click.echo)


@main.command(
    short_help="Rerun the paper's experiments and judge its claims.",
    epilog="""
\b
Examples:
  evenout reproduce
      all eight data sets, five repeats; open results/index.html
  evenout reproduce --quick
      three small data sets, two repeats
  evenout reproduce --datasets communities,german --repeats 10 --out two
""",
)
@click.option("--datasets", metavar="NAMES", help="Names of the paper's data sets, with commas.  [default: all eight]")
@click.option(
    "--out", type=A_PATH, default=Path("results"), show_default=True, metavar="FOLDER", help="Folder for the results."
)
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="NUMBER",
    help="Draws of forest, groups and alphas.",
)  # fmt: skip
@estimator_options("random_state")
@click.option("--quick", is_flag=True, help="Three small data sets, at most two repeats.")
def reproduce(datasets: str | None, out: Path, repeats: int, random_state: int, quick: bool) -> None:
    """Rerun the experiments of the paper on its data sets.

    Writes every point behind every figure, the figures, a verdict on each claim by a stated rule, and a page that leads
    through them. The same seed gives the same points, byte for byte.
    """
    with plain_messages(), progress(quiet=False) as step:
        from joblib import effective_n_jobs

        from evenout.cli.show import show_claims
        from evenout.reproduce import reproduce as run

        results = run(
            out, datasets=None if datasets is None else split_names([datasets]), repeats=repeats, seed=random_state,
            quick=quick, n_threads=effective_n_jobs(-1),
            progress=lambda label, done, total: step(label, total)(done),
        )  # fmt: skip
    show_claims(results)
