"""Even flags on rows that were never seen: detector weights beside resemblance, and both, on the same base score.

Fit on one half, judge on the other, then the other way round, over several splits: each row is judged as often as it is
fitted on. (To fit on the first half alone would flatter or belittle a method by the luck of the split: a half that
happens to be more even than the other asks for less than the other needs.) The top tenth of the judged half is flagged.

    python benchmarks/flags.py                          # everything, about half an hour on one core
    python benchmarks/flags.py --data credit --splits 2 --json

weights      `FairOutlierEnsemble` as it comes
resemblance  with ``correction="resemblance"``
both         with ``correction="both"``
nonnegative  with ``correction="both", weights="nonnegative"``

For each request: how often a fit says that it is met, and the mean distance of the judged ratio from what was asked
where it says so (of the share of the bias removed, over these halves together, where that was asked); the ratio of
rates pooled over the halves; and the price: the share of the base list that is kept, mean base score of the flagged in
standard deviations, correlation with the base score, AUC, average precision, precision among the flagged. Detectors
that count backwards are those with a weight below 0.
"""

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from evenout import FairOutlierEnsemble, Groups, Resemblance
from evenout.core.flags import flag_threshold, group_rates, rate_ratio
from evenout.core.types import AnyArray, BoolArray, FloatArray, IntArray
from evenout.datasets import list_scenarios
from evenout.metrics import average_precision, demographic_parity, roc_auc
from halves import load

FLAGGED = 0.1
REQUESTS: tuple[tuple[str, float], ...] = (
    ("flag_rate_ratio", 0.7), ("flag_rate_ratio", 0.8), ("flag_rate_ratio", 0.9), ("bias_reduction", 0.8),
)  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "weights": {},
    "both": {"correction": "both"},
    "resemblance": {"correction": "resemblance"},
    "nonnegative": {"correction": Resemblance(weights="nonnegative")},
}
ENOUGH = 500  # flagged rows of each group, over all halves, from which a pooled ratio is judged


@dataclass(frozen=True)
class Half:
    """Rows that are judged."""

    X: FloatArray
    groups: IntArray
    y: AnyArray


@dataclass
class Judged:
    """One method and one request, or no request at all: one entry per half."""

    met: list[bool] = field(default_factory=list)
    stated: list[float] = field(default_factory=list)
    rates: list[FloatArray] = field(default_factory=list)
    removed: list[tuple[float, float]] = field(default_factory=list)  # gap before and after
    measures: list[dict[str, float]] = field(default_factory=list)

    def add(self, half: Half, base: FloatArray, y: FloatArray, model: FairOutlierEnsemble | None) -> None:
        """Judge a score."""
        over, before = flagged(y), flagged(base)
        self.met.append(model is None or model.request_met_)
        self.stated.append(float("nan") if model is None else model.flag_rate_ratio_)
        self.rates.append(group_rates(over, half.groups, int(half.groups.max()) + 1))
        self.removed.append((gap(half, base), gap(half, y)))
        self.measures.append(
            {
                "kept": float((over & before).sum() / before.sum()),
                "stand_out": float((base[over].mean() - base.mean()) / base.std()),
                "correlation": float(np.corrcoef(y, base)[0, 1]),
                "auc": float(roc_auc(half.y, y)),
                "average_precision": float(average_precision(half.y, y)),
                "precision_flagged": float(np.mean(np.asarray(half.y)[over])),
                "backwards": 0.0 if model is None else float((model.weights_ < 0).sum()),
            }
        )

    def summary(self, way: str, asked: float) -> dict[str, Any]:
        """Means over the halves."""
        each, said = rate_ratio(np.array(self.rates).T), np.array(self.met, dtype=bool)
        before, after = np.mean(self.removed, axis=0)
        error = None
        if said.any() and way == "flag_rate_ratio":
            error = float(np.abs(each[said] - asked).mean())
        elif said.any():
            old, new = np.array(self.removed)[said].mean(axis=0)
            error = float(abs(1.0 - new / old - asked))
        return {
            "says_met": float(said.mean()),
            "error_where_met": error,
            "ratio_stated": None if np.isnan(self.stated).any() else float(np.mean(self.stated)),
            "ratio_mean": float(each.mean()),
            "ratio_pooled": float(rate_ratio(np.mean(self.rates, axis=0))),
            "bias_removed": float(1.0 - after / before),
            **{name: float(np.mean([m[name] for m in self.measures])) for name in self.measures[0]},
        }


@dataclass
class Story:
    """Results for one data set."""

    name: str
    base: Judged = field(default_factory=Judged)
    asked: dict[tuple[str, str, float], Judged] = field(default_factory=dict)
    sizes: list[FloatArray] = field(default_factory=list)

    def flagged_in_all(self) -> float:
        """Flagged rows of the group with fewest, over all halves, by the base score."""
        return float((np.array(self.sizes) * np.array(self.base.rates)).sum(axis=0).min())

    def kept_at(self, method: str, ratio: float) -> float:
        """Share of the list kept at a pooled ratio, on straight lines between the base score and the requests."""
        ways = [judged for (m, way, _), judged in self.asked.items() if m == method and way == "flag_rate_ratio"]
        points = [judged.summary("flag_rate_ratio", 1.0) for judged in (self.base, *ways)]
        points.sort(key=lambda p: p["ratio_pooled"])
        return float(np.interp(ratio, [p["ratio_pooled"] for p in points], [p["kept"] for p in points]))

    def equal_ratio(self, request: float) -> float:
        """The ratio at which weights and resemblance are compared: what both of them reach."""
        both = [self.asked[method, "flag_rate_ratio", request] for method in ("weights", "resemblance")]
        return min(judged.summary("flag_rate_ratio", request)["ratio_pooled"] for judged in both)


def flagged(y: FloatArray) -> BoolArray:
    """The top tenth."""
    return np.asarray(y > flag_threshold(y, FLAGGED))


def gap(half: Half, y: FloatArray) -> float:
    """Corrected scale-free gap of the judged half."""
    return demographic_parity(y, sensitive_features=half.groups, scale_free=True, corrected=True)


def halves(name: str, split: int) -> Iterator[tuple[Half, Half]]:
    """Rows to fit on and rows to judge on, both ways round; groups are halved alike."""
    X, y, groups = load(name, split)
    rng = np.random.default_rng(1000 + split)
    first = np.zeros(len(X), dtype=bool)
    for group in range(int(groups.max()) + 1):
        rows = rng.permutation(np.flatnonzero(groups == group))
        first[rows[: len(rows) // 2]] = True
    one, two = (Half(np.ascontiguousarray(X[rows]), groups[rows], y[rows]) for rows in (first, ~first))
    yield one, two
    yield two, one


def fitted(rows: Half, seed: int, settings: dict[str, Any]) -> FairOutlierEnsemble:
    """A model of one half."""
    model = FairOutlierEnsemble(groups=Groups(min_size=10), contamination=FLAGGED, random_state=seed, **settings)
    return model.fit(rows.X, sensitive_features=rows.groups)


def tell(name: str, splits: int) -> Story:
    """Run all methods on every half of one data set."""
    warnings.simplefilter("ignore")  # what cannot be reached or detected is in the table
    story = Story(name)
    for split in range(splits):
        for fit, judge in halves(name, split):
            for method, settings in METHODS.items():
                model = fitted(fit, split, settings)
                columns = model._scored(lambda _, S: S, judge.X)
                base = model._result.scores.base(columns)
                if method == "weights":
                    story.base.add(judge, base, base, None)
                    story.sizes.append(np.bincount(judge.groups).astype(float))
                for way, request in REQUESTS:
                    fair = model.at(**{way: request})
                    y = fair._result.mixture.apply(columns, base)
                    story.asked.setdefault((method, way, request), Judged()).add(judge, base, y, fair)
    return story


def show(story: Story, say: Callable[[str], None]) -> None:
    """A table for one data set."""
    base = story.base.summary("flag_rate_ratio", 1.0)
    say(
        f"\n{story.name}: base ratio {base['ratio_pooled']:.2f}, AUC {base['auc']:.3f}, average precision "
        f"{base['average_precision']:.3f}, precision {base['precision_flagged']:.3f}; "
        f"fewest flagged of a group {story.flagged_in_all():.0f}"
    )
    for (method, way, request), judged in sorted(story.asked.items(), key=lambda item: item[0][1:]):
        s = judged.summary(way, request)
        error = "   -" if s["error_where_met"] is None else f"{s['error_where_met']:.2f}"
        say(
            f"  {way:15s} {request:.1f} {method:11s} says met {s['says_met']:4.0%} error {error}  ratio stated "
            f"{s['ratio_stated']:.2f} pooled {s['ratio_pooled']:.2f}  bias removed {s['bias_removed']:5.2f}  kept "
            f"{s['kept']:.2f}  correlation {s['correlation']:.2f}  AUC {s['auc']:.3f}  AP "
            f"{s['average_precision']:.3f}  precision {s['precision_flagged']:.3f}  backwards {s['backwards']:.1f}"
        )
    ratio = story.equal_ratio(0.8)
    kept = {method: story.kept_at(method, ratio) for method in METHODS}
    say(f"  at the ratio {ratio:.2f}: " + ", ".join(f"{method} keep {share:.2f}" for method, share in kept.items()))


def summary(story: Story) -> dict[str, Any]:
    """One data set in the object of --json."""
    found: dict[str, Any] = {
        "base": story.base.summary("flag_rate_ratio", 1.0),
        "halves": len(story.sizes),
        "fewest_flagged": story.flagged_in_all(),
    }
    for (method, way, request), judged in story.asked.items():
        found.setdefault(f"{way}={request:g}", {})[method] = judged.summary(way, request)
    for request in (0.8, 0.9):
        entry, ratio = found[f"flag_rate_ratio={request:g}"], story.equal_ratio(request)
        entry["at_equal_ratio"] = {"ratio": ratio} | {method: story.kept_at(method, ratio) for method in METHODS}
        enough = story.flagged_in_all() >= ENOUGH
        entry["pooled_error"] = abs(entry["resemblance"]["ratio_pooled"] - request) if enough else None
    return found


def main() -> None:
    """Parse the command line, run, print."""
    names = ["credit", "communities", "breastw", *list_scenarios()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--splits", type=int, default=5, help="each is judged both ways round")
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    told = Parallel(n_jobs=options.n_jobs, return_as="generator")(
        delayed(tell)(name, options.splits) for name in options.data
    )
    results = {}
    for name, story in zip(options.data, told, strict=True):
        results[name] = summary(story)
        show(story, lambda line: print(line, flush=True))
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
