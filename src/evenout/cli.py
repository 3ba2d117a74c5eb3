"""The command line: the only module that prints or exits."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import evenout

if TYPE_CHECKING:
    import pandas as pd

    from evenout.datasets import Dataset

_EXAMPLES = """
\b
Examples:
  evenout fit credit                       fair scores for the bundled card clients
  evenout fit german --bias-reduction 0.5  remove half of the group bias only
"""


class _Failure(click.ClickException):
    """One clear line and exit status 2."""

    exit_code = 2


@contextmanager
def _plain_messages() -> Iterator[None]:
    """Turn bad input into one line, and the library's warnings into one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except (ValueError, OSError) as error:
            raise _Failure(" ".join(str(error).split())) from None
        finally:
            for message in dict.fromkeys(
                str(w.message) for w in caught if issubclass(w.category, UserWarning)
            ):
                click.echo(f"Note: {message}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(evenout.__version__, prog_name="evenout")
def main() -> None:
    """Fair outlier detection.

    Scores rows by how outlying they are, evens out protected groups, and shows what that costs.
    """


@main.command(epilog=_EXAMPLES)
@click.argument("data", metavar="DATA")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("evenout-out"),
    show_default=True,
    help="Folder for the results.",
)
@click.option(
    "--bias-reduction",
    type=float,
    default=None,
    help="Share of the group bias to remove on unseen rows.  [default: 0.8]",
)
@click.option(
    "--flag-rate-ratio",
    type=float,
    default=None,
    help="Least ratio of flag rates between groups, e.g. 0.8, instead.",
)
@click.option("--alpha", type=float, default=None, help="The trade-off parameter of the paper, instead.")
@click.option("--contamination", type=float, default=0.1, show_default=True, help="Share of rows to flag.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random.")
def fit(data: str, out: Path, seed: int, **settings: Any) -> None:
    """Fit a fair ensemble on DATA, the name of a bundled data set, and write scores.csv.

    Prints the bias before and after, the flag rates by group and what the fairness cost.
    """
    from evenout.datasets import load_dataset
    from evenout.output import atomic_folder

    with _plain_messages():
        dataset = load_dataset(data)
        with atomic_folder(out) as folder:
            model = evenout.FairOutlierEnsemble(random_state=seed, n_jobs=-1, **settings)
            model.fit(dataset.X, sensitive_features=dataset.sensitive)
            _scores_table(model, dataset).to_csv(folder / "scores.csv", index=False)
        _show_fit(model, dataset)
        click.echo(f"Scores of {len(dataset.X):,} rows: {out / 'scores.csv'}")


def _scores_table(model: "evenout.FairOutlierEnsemble", dataset: "Dataset") -> "pd.DataFrame":
    import pandas as pd

    base, fair = pd.Series(model.target_), pd.Series(model.outlier_scores_)
    return pd.DataFrame(
        {
            "row": np.arange(len(base)),
            "group": np.asarray(dataset.sensitive),
            "base_score": base,
            "fair_score": fair,
            "base_rank": base.rank(ascending=False, method="min").astype(int),
            "fair_rank": fair.rank(ascending=False, method="min").astype(int),
            "flagged": (fair > -model.offset_).astype(int),
        }
    )


def _show_fit(model: "evenout.FairOutlierEnsemble", dataset: "Dataset") -> None:
    """What a person wants to know: is it fairer, for whom, and at which price."""
    from rich.console import Console
    from rich.table import Table

    from evenout.metrics import flag_rate_ratio, flag_rates, roc_auc

    path, groups = model.path_, dataset.sensitive
    scores = {"before": model.target_, "after": model.outlier_scores_}
    rates = {
        when: flag_rates(y, sensitive_features=groups, contamination=model.contamination)
        for when, y in scores.items()
    }
    ratio = {
        when: flag_rate_ratio(y, sensitive_features=groups, contamination=model.contamination)
        for when, y in scores.items()
    }
    table = Table(
        title=f"{dataset.name}: {len(dataset.X):,} rows, alpha = {model.alpha_:.4g}", title_justify="left"
    )
    table.add_column("")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    after = float(path.bias(model.alpha_, model.target))
    table.add_row(
        f"group bias on {model.target} rows (squared gap of means / variance)",
        f"{path.target_bias(model.target):.4f}",
        f"{after:.4f}",
    )
    for group in rates["before"]:
        table.add_row(
            f"flagged among {group}", f"{rates['before'][group]:.1%}", f"{rates['after'][group]:.1%}"
        )
    table.add_row("lowest / highest flag rate (1 is even)", f"{ratio['before']:.2f}", f"{ratio['after']:.2f}")
    auc = {when: roc_auc(dataset.y, y) for when, y in scores.items()}
    table.add_row(
        "AUC against the known outliers (never used in fitting)",
        f"{auc['before']:.3f}",
        f"{auc['after']:.3f}",
    )
    console = Console(file=sys.stdout, highlight=False)
    console.print(table)
    if model.gap_detected_:
        console.print(
            f"Removed {model.bias_reduction_:.0%} of the bias on {model.target} rows; "
            f"AUC changed by {auc['after'] - auc['before']:+.3f}."
        )
