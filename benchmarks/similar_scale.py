"""The length scale at which individual fairness is about similar rows, and not about a few near-duplicates.

For every bundled table and several length scales, in median distances between rows of different groups: how many
similar rows of other groups there are to a row (twice the effective pairs over the rows), and which part of all the
likeness lies in the ten most similar pairs of up to 3000 drawn rows. The default is the shortest of these lengths at
which every table has at least five similar rows to a row.

With --splits, what that means for fitting: half of the unfairness at each length is asked for on one half of a table,
and what is gone on the other half is printed.
"""

import argparse
import json
import warnings

import numpy as np
from scipy.spatial.distance import cdist

from evenout import Groups
from evenout.core.individual import DEFAULT_LENGTH, LengthScale, comparable_rows, draw_rows, effective_pairs
from evenout.core.types import FloatArray, IntArray
from evenout.datasets import list_datasets, load_dataset
from evenout.groups.read import read_groups
from similar import judge

LENGTHS = (0.02, 0.05, 0.1, 0.2, 0.5)
WANTED = 5.0  # similar rows of other groups to a row
SAMPLE = 3000


def top_share(rows: FloatArray, groups: IntArray, scale: float) -> float:
    """Part of the likeness that the ten most similar pairs hold, among at most 3000 rows."""
    drawn = draw_rows(rows, groups, SAMPLE)
    across = np.triu(groups[drawn][:, None] != groups[drawn])
    similar = np.sort(np.exp(-cdist(rows[drawn], rows[drawn])[across] / scale))
    return float(similar[-10:].sum() / similar.sum())


def measure(name: str) -> dict[str, dict[str, float]]:
    """Effective pairs of one table at every length."""
    data = load_dataset(name)
    groups = read_groups(data.sensitive, len(data.X), Groups()).codes
    X = data.X.to_numpy(dtype=float)
    scales: dict[str, LengthScale] = {str(length): ("median", length) for length in LENGTHS}
    found = {}
    for name_of, length in {**scales, "minmax": "minmax"}.items():
        rows, scale = comparable_rows(X, groups, length)
        pairs = effective_pairs(rows, groups, scale)
        found[name_of] = {"effective_pairs": pairs, "similar_rows": 2 * pairs / int((groups >= 0).sum())}
        if scale != "minmax":
            found[name_of]["top_ten"] = top_share(rows, groups, scale)
    return found


def removed(name: str, length: float, splits: int, n_jobs: int) -> float:
    """Part of the unfairness at this length that is gone on the half that was not fitted on, mean over splits."""
    options = argparse.Namespace(detectors="diverse", ask=0.5, length=length, n_jobs=n_jobs)
    runs = np.array([judge(name, split, options)[:2] for split in range(splits)])
    return float(1 - runs[:, 1].mean() / runs[:, 0].mean())


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list_datasets(), default=list_datasets(), metavar="NAME")
    parser.add_argument("--splits", type=int, default=0, help="fits per table and length; credit is left out")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # what is out of reach is in the table
    tables = {name: measure(name) for name in options.data}
    print("similar rows of other groups to a row (part of all likeness in the ten most similar pairs)")
    print(f"{'':12s}" + "".join(f"{length!s:>16}" for length in (*LENGTHS, "minmax")))
    for name, found in tables.items():
        cells = [f"{f['similar_rows']:.3g} ({f['top_ten']:.0%})" for f in list(found.values())[:-1]]
        cells.append(f"{found['minmax']['similar_rows']:.3g}")
        print(f"{name:12s}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    enough = [
        length for length in LENGTHS if all(found[str(length)]["similar_rows"] >= WANTED for found in tables.values())
    ]
    print(f"shortest length with at least {WANTED:g} on every table: {enough[0] if enough else 'none'}")
    print(f"the default is {DEFAULT_LENGTH}")
    fits: dict[str, dict[str, float]] = {}
    for name in options.data if options.splits else ():
        if name != "credit":
            fits[name] = {str(x): removed(name, x, options.splits, options.n_jobs) for x in (0.05, 0.1, 0.2)}
            shown = "   ".join(f"{x}: {gone:+.0%}" for x, gone in fits[name].items())
            print(f"{name:12s} unfairness gone on the unseen half, 50% asked: {shown}", flush=True)
    if options.json:
        print(json.dumps({"lengths": tables, "shortest": enough[:1], "removed": fits}))


if __name__ == "__main__":
    main()
