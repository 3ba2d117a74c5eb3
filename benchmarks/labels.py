"""Effect of known labels on the target: AUC on rows that were never seen, by number of labels and how they came about.

Every table is cut into halves. On the first, detectors are fitted and a stack is learnt from the labels of some rows
(`evenout.core.stacking`); the second is judged with all its labels. Detectors and halves are the same for every number.

    python benchmarks/labels.py --json                 # everything, about two minutes on one core
    python benchmarks/labels.py --quick                # a look
    python benchmarks/labels.py --pool diverse         # another pool
    python benchmarks/labels.py --fair 300             # the estimator: base score, taught and fair, AUC and gap
    python benchmarks/labels.py --fair 300 --reference 0.2     # the same over partitions

random      labels of rows drawn at random
flagged     labels of rows among the tenth with the highest base score alone: of the others nobody ever knew
chosen      every row had a chance, which rises with the rank of its base score by a factor of 55; not corrected for
weighted    the same rows, with the chances given
useless     random rows whose labels were shuffled: here the stack should leave the base score as it is

Where a half has fewer rows of a way than asked for, all of them are labelled: a tenth of a half of vowels is 72 rows.
Errors are standard errors over the halves; in each half labels are drawn several times and averaged.
"""

import argparse
import json
import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from evenout import FairOutlierEnsemble
from evenout.core.stacking import Population, Stack, learn_stack
from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.datasets import list_datasets, load_dataset
from evenout.detectors.pool import fit_pool, standard_units
from evenout.fitting.score_model import learn_scores
from evenout.metrics import demographic_parity
from evenout.out_of_core.engines import Engine, Partition

LABELS = (20, 50, 100, 300)
WAYS = ("random", "flagged", "chosen", "weighted", "useless")
FLAGGED = 0.1
STEEP = 4.0  # chances rise as exp(4 rank)
QUICK = ("german", "breastw", "pima")
LEAST = {"credit": 0.65, "communities": 0.74}  # AUC with 100 random labels
LEAST_GAIN = 0.04  # on average over tables, with 100 random labels
ALLOWED_LOSS = 0.01  # of a table's mean at any number of random labels, beside two standard errors


@dataclass(frozen=True)
class Halves:
    """Scores of the half that is learnt on and of the half that is judged, with the labels of both."""

    S: FloatArray
    t: FloatArray
    y: FloatArray
    population: Population
    S_judged: FloatArray
    t_judged: FloatArray
    y_judged: AnyArray

    def learn(self, rows: IntArray, y: FloatArray, propensity: FloatArray | None = None) -> Stack:
        """Learn from the labels y of some rows."""
        chances = None if propensity is None else propensity[rows]
        return learn_stack(self.S[rows], self.t[rows], y[rows], propensity=chances, population=self.population)

    def judge(self, stack: Stack) -> float:
        """AUC on the other half."""
        return float(roc_auc_score(self.y_judged, stack.apply(self.S_judged, self.t_judged)))


@dataclass
class Found:
    """Gains in AUC, label weights and numbers of labels: one entry for each half."""

    gain: list[float] = field(default_factory=list)
    label_weight: list[float] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)

    def add(self, each: list[tuple[float, Stack]]) -> None:
        """Average over the draws in one half."""
        self.gain.append(float(np.mean([gain for gain, _ in each])))
        self.label_weight.append(float(np.mean([stack.label_weight for _, stack in each])))
        self.labels.append(float(np.mean([stack.n_labels for _, stack in each])))

    @property
    def error(self) -> float:
        """Standard error of the mean gain."""
        return float(np.std(self.gain, ddof=1) / np.sqrt(len(self.gain))) if len(self.gain) > 1 else float("nan")

    def summary(self, base: float) -> dict[str, float]:
        """For --json."""
        return {
            "auc": base + float(np.mean(self.gain)),
            "gain": float(np.mean(self.gain)),
            "error": self.error,
            "label_weight": float(np.mean(self.label_weight)),
            "labels": float(np.mean(self.labels)),
        }


def cut(name: str, repeat: int, pool: str, combination: str) -> Halves:
    """One random halving, with detectors, scaling and base score learnt on the first half."""
    data = load_dataset(name, random_state=repeat)
    X, y = data.X.to_numpy(), data.y.to_numpy()
    order = np.random.default_rng(1000 + repeat).permutation(len(X))
    first, second = order[: len(X) // 2], order[len(X) // 2 :]
    fitted, raw = fit_pool(pool, X[first], seed=repeat, units=standard_units(pool, X[first]), sides=True)
    everyone = np.ones(len(raw), dtype=bool)
    model, S, t = learn_scores(fitted, raw, everyone, scaling="minmax", combination=combination, seed=repeat)
    judged = model.scaled(X[second])
    return Halves(S, t, y[first].astype(float), Population.of(S, t), judged, model.base(judged), y[second])


def ways(half: Halves, rng: np.random.Generator) -> dict[str, tuple[IntArray, FloatArray, bool]]:
    """For each way the rows in the order in which their labels become known, the labels, and whether to weight."""
    n = len(half.t)
    random = rng.permutation(n)
    top = rng.permutation(np.argsort(-half.t, kind="stable")[: round(FLAGGED * n)])
    chosen = np.argsort(rng.exponential(size=n) / chances(half.t))  # without replacement, by these chances
    return {
        "random": (random, half.y, False),
        "flagged": (top, half.y, False),
        "chosen": (chosen, half.y, False),
        "weighted": (chosen, half.y, True),
        "useless": (random, rng.permutation(half.y), False),
    }


def chances(t: FloatArray) -> FloatArray:
    """Relative chances of being looked at, rising with the rank."""
    return np.exp(STEEP * rankdata(t) / len(t))


def tell(name: str, options: argparse.Namespace) -> tuple[list[float], dict[tuple[str, int], Found]]:
    """Base AUC of every half, and what each way and number of labels changed."""
    base: list[float] = []
    found = {(way, n): Found() for way in WAYS for n in LABELS}
    for repeat in range(options.repeats):
        half = cut(name, repeat, options.pool, options.combination)
        base.append(float(roc_auc_score(half.y_judged, half.t_judged)))
        each: dict[tuple[str, int], list[tuple[float, Stack]]] = {key: [] for key in found}
        for draw in range(options.draws):
            drawn = ways(half, np.random.default_rng([repeat, draw]))
            for way, n in found:
                rows, y, weighted = drawn[way]
                share = chances(half.t)
                propensity = np.minimum(n * share / share.sum(), 1.0) if weighted else None
                stack = half.learn(rows[:n], y, propensity)
                each[way, n].append((half.judge(stack) - base[-1], stack))
        for key, values in each.items():
            found[key].add(values)
    return base, found


def show(name: str, base: list[float], found: dict[tuple[str, int], Found]) -> None:
    """A table for one data set."""
    print(f"\n{name}: base AUC {np.mean(base):.3f}", flush=True)
    for way in WAYS:
        cells = []
        for n in LABELS:
            entry = found[way, n]
            cells.append(
                f"{np.mean(base) + np.mean(entry.gain):.3f} ({np.mean(entry.gain):+.3f} ± {entry.error:.3f}, "
                f"weight {np.mean(entry.label_weight):.2f})"
            )
        print(f"  {way:9s} " + "   ".join(cells), flush=True)


def requirements(per_table: dict[str, dict[str, dict[str, dict[str, float]]]]) -> dict[str, object]:
    """Whether random labels do what is asked of them."""
    random = {name: entry["random"] for name, entry in per_table.items()}
    margins = {
        f"{name} {n}": cell["gain"] + ALLOWED_LOSS + 2 * cell["error"]
        for name, cells in random.items()
        for n, cell in cells.items()
    }
    gain = float(np.mean([cells["100"]["gain"] for cells in random.values()]))
    reached = {name: random[name]["100"]["auc"] for name in LEAST if name in random}
    return {
        "auc_at_100": reached,
        "auc_at_100_met": all(reached[name] >= LEAST[name] for name in reached) if reached else None,
        "mean_gain_at_100": gain,
        "mean_gain_met": gain >= LEAST_GAIN,
        "least_margin": min(margins.items(), key=lambda item: item[1]),
        "no_table_falls": min(margins.values()) >= 0,
    }


def fitted(model: Any, X: Any, sensitive: Any, labels: FloatArray | None, reference: float | None) -> Any:
    """The model after a fit in memory, or over four partitions with a reference of some share of the rows."""
    if reference is None:
        return model.fit(X, sensitive_features=sensitive, labels=labels)
    model.set_params(reference_size=round(reference * len(X)))
    pieces = np.array_split(np.arange(len(X)), 4)
    own = [(X.iloc[rows], sensitive.iloc[rows], None, None if labels is None else labels[rows]) for rows in pieces]
    parts = [Partition(place, f"part {place}", partial(tuple, columns)) for place, columns in enumerate(own)]
    return model.fit_partitions(Engine(parts, X.iloc[:0]))


def fair(name: str, options: argparse.Namespace, n_labels: int) -> dict[str, float]:
    """The fair score at -80 % with a target that has learnt: AUC, and what is left of the gap of both base scores."""
    rows = []
    for repeat in range(options.repeats):
        data = load_dataset(name, random_state=repeat)
        rng = np.random.default_rng(1000 + repeat)
        order = rng.permutation(len(data.X))
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        labels = np.full(len(first), np.nan)
        known = rng.permutation(len(first))[:n_labels]
        labels[known] = data.y.to_numpy()[first][known]
        given = (data.X.iloc[first], data.sensitive.iloc[first])
        model = FairOutlierEnsemble(options.pool, learn=True, bias_reduction=0.8, random_state=repeat)
        plain = FairOutlierEnsemble(options.pool, alpha=0.0, random_state=repeat)
        model = fitted(model, *given, labels, options.reference)
        plain = fitted(plain, *given, None, options.reference)
        judged, groups = data.X.iloc[second], {"sensitive_features": data.sensitive.iloc[second]}
        scores = plain.base_scores(judged), model.base_scores(judged), model.outlier_scores(judged)
        gaps = [demographic_parity(score, **groups, scale_free=True, corrected=True) for score in scores]
        aucs = [roc_auc_score(data.y.iloc[second], score) for score in scores]
        rows.append([*aucs, *gaps])
    names = ("auc_base", "auc_taught", "auc_fair", "gap_base", "gap_taught", "gap_fair")
    return dict(zip(names, np.mean(rows, axis=0).round(4).tolist(), strict=True))


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=list_datasets(), metavar="NAME")
    parser.add_argument("--repeats", type=int, default=10, help="halvings of every table")
    parser.add_argument("--draws", type=int, default=5, help="of labels in every half")
    parser.add_argument("--pool", default="default")
    parser.add_argument("--combination", default="average")
    parser.add_argument("--quick", action="store_true", help="three small tables, two halvings")
    parser.add_argument("--fair", type=int, metavar="LABELS", help="instead: the fair score with so many random labels")
    parser.add_argument(
        "--reference", type=float, metavar="SHARE", help="with --fair: over four partitions, detectors see this share"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.draws = 2, 2
    names = options.data or (QUICK if options.quick else list_datasets())
    warnings.simplefilter("ignore")
    if options.fair:
        print(json.dumps({name: fair(name, options, options.fair) for name in names}))
        return
    per_table = {}
    print(f"AUC on unseen halves with {', '.join(map(str, LABELS))} labels (gain ± standard error, label weight)")
    for name in names:
        base, found = tell(name, options)
        show(name, base, found)
        mean = float(np.mean(base))
        per_table[name] = {way: {str(n): found[way, n].summary(mean) for n in LABELS} for way in WAYS} | {
            "none": {"0": {"auc": mean, "gain": 0.0, "error": 0.0, "label_weight": 0.0, "labels": 0.0}}
        }
    means = {
        way: {str(n): float(np.mean([entry[way][str(n)]["gain"] for entry in per_table.values()])) for n in LABELS}
        for way in WAYS
    }
    print("\nmean gain over tables")
    for way in WAYS:
        print(f"  {way:9s} " + "   ".join(f"{value:+.4f}" for value in means[way].values()))
    asked = requirements(per_table)
    print("\n" + "\n".join(f"{key}: {value}" for key, value in asked.items()))
    if options.json:
        print(json.dumps({"pool": options.pool, "per_table": per_table, "mean_gain": means, "required": asked}))


if __name__ == "__main__":
    main()
