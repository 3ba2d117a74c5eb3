"""Even flags on rows that were never seen: detector weights beside resemblance, on the same base score.

Fit on one half, judge on the other, over many splits. The top tenth of the judged half is flagged.

    python benchmarks/flags.py                          # everything, about fifteen minutes on one core
    python benchmarks/flags.py --data credit --splits 3

weights      `FairOutlierEnsemble`, diverse pool: the place on its path of means with even enough flags
resemblance  `BlindRepair` of the same base score, as detectors fitted without a row's fold give it

For each request: how often a fit says that it is met, and the mean distance of the judged ratio from what was asked
where it says so (of the share of the bias removed, over these splits together, where that was asked); the ratio of
rates pooled over the splits; and the price: the share of the base list that is kept, correlation with the
base score, AUC, average precision, precision among the flagged.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from evenout import BlindRepair
from evenout.core.flags import flag_threshold, group_rates, rate_ratio
from evenout.core.types import BoolArray, FloatArray
from evenout.datasets import list_scenarios
from evenout.metrics import average_precision, demographic_parity, roc_auc
from halves import Split, cut

FLAGGED = 0.1
REQUESTS: tuple[tuple[str, float], ...] = (("flag_rate_ratio", 0.8), ("flag_rate_ratio", 0.9), ("bias_reduction", 0.8))
CURVE = 40  # places on the path of the weights
ENOUGH = 500  # flagged rows of each group, over all splits, from which a pooled ratio is judged


@dataclass
class Judged:
    """One method and one request, or no request at all: one entry per split."""

    met: list[bool] = field(default_factory=list)
    rates: list[FloatArray] = field(default_factory=list)
    removed: list[tuple[float, float]] = field(default_factory=list)  # gap before and after
    measures: list[dict[str, float]] = field(default_factory=list)

    def add(self, split: Split, y: FloatArray, met: bool) -> None:
        """Judge a score of the second half."""
        base, labels = split.diverse.Z[:, -1], split.judge.y
        over, before = flagged(y), flagged(base)
        self.met.append(met)
        self.rates.append(group_rates(over, split.judge.groups, split.n_groups))
        self.removed.append((gap(split, base), gap(split, y)))
        self.measures.append(
            {
                "kept": float((over & before).sum() / before.sum()),
                "correlation": float(np.corrcoef(y, base)[0, 1]),
                "auc": float(roc_auc(labels, y)),
                "average_precision": float(average_precision(labels, y)),
                "precision_flagged": float(np.mean(np.asarray(labels)[over])),
            }
        )

    def summary(self, way: str, asked: float) -> dict[str, Any]:
        """Means over the splits."""
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
            "ratio_mean": float(each.mean()),
            "ratio_pooled": float(rate_ratio(np.mean(self.rates, axis=0))),
            "bias_removed": float(1.0 - after / before),
            **{name: float(np.mean([m[name] for m in self.measures])) for name in self.measures[0]},
        }


@dataclass
class Story:
    """What was found for one data set."""

    name: str
    base: Judged = field(default_factory=Judged)
    asked: dict[tuple[str, str, float], Judged] = field(default_factory=dict)
    sizes: list[FloatArray] = field(default_factory=list)
    curve_rates: list[FloatArray] = field(default_factory=list)  # of the weights along their path, (G, m)
    curve_kept: list[FloatArray] = field(default_factory=list)

    def flagged_in_all(self) -> float:
        """Flagged rows of the group with fewest, over all splits, by the base score."""
        return float((np.array(self.sizes) * np.array(self.base.rates)).sum(axis=0).min())

    def weights_kept_at(self, ratio: float) -> float | None:
        """What the weights keep where their pooled ratio first reaches one, if it ever does."""
        found = rate_ratio(np.mean(self.curve_rates, axis=0)) >= ratio
        return float(np.mean(self.curve_kept, axis=0)[int(found.argmax())]) if found.any() else None

    def resemblance_kept_at(self, ratio: float) -> float:
        """What resemblance keeps at a pooled ratio, on straight lines between the base score and the two requests."""
        asked = [self.asked["resemblance", "flag_rate_ratio", request] for request in (0.8, 0.9)]
        points = [judged.summary("flag_rate_ratio", 1.0) for judged in (self.base, *asked)]
        return float(np.interp(ratio, [p["ratio_pooled"] for p in points], [p["kept"] for p in points]))


def flagged(y: FloatArray) -> BoolArray:
    """The top tenth."""
    return np.asarray(y > flag_threshold(y, FLAGGED))


def gap(split: Split, y: FloatArray) -> float:
    """Corrected scale-free gap of the judged half."""
    return demographic_parity(y, sensitive_features=split.judge.groups, scale_free=True, corrected=True)


def tell(name: str, splits: int) -> Story:
    """Run both methods on every split of one data set."""
    warnings.simplefilter("ignore")  # what cannot be reached or detected is in the table
    story = Story(name)
    for number in range(splits):
        split = cut(name, number, "average", 1)
        model, base = split.diverse.model, split.diverse.Z[:, -1]
        story.base.add(split, base, True)
        story.sizes.append(np.bincount(split.judge.groups).astype(float))
        for way, request in REQUESTS:
            fair = model.at(**{way: request})
            found = story.asked.setdefault(("weights", way, request), Judged())
            found.add(split, split.diverse.judged(fair.path_, np.array([fair.alpha_]))[:, 0], fair.request_met_)
            repair = BlindRepair(min_group_size=10, contamination=FLAGGED, random_state=number)
            repair.set_params(**{way: request}).fit(
                model._result.seen.t, split.fit.X, sensitive_features=split.fit.groups
            )
            found = story.asked.setdefault(("resemblance", way, request), Judged())
            found.add(split, repair.transform(base, split.judge.X), repair.request_met_)
        along = split.diverse.judged(model.path_, np.r_[0.0, model.path_.grid(CURVE)])
        over = np.column_stack([flagged(y) for y in along.T])
        story.curve_rates.append(group_rates(over, split.judge.groups, split.n_groups))
        story.curve_kept.append(over[flagged(base)].mean(axis=0))
    return story


def show(story: Story, say: Callable[[str], None]) -> None:
    """A table for one data set."""
    base = story.base.summary("flag_rate_ratio", 1.0)
    say(
        f"\n{story.name}: base ratio {base['ratio_pooled']:.2f}, AUC {base['auc']:.3f}, "
        f"average precision {base['average_precision']:.3f}; fewest flagged of a group {story.flagged_in_all():.0f}"
    )
    for (method, way, request), judged in story.asked.items():
        s = judged.summary(way, request)
        error = "   -" if s["error_where_met"] is None else f"{s['error_where_met']:.2f}"
        say(
            f"  {way:15s} {request:.1f} {method:11s} says met {s['says_met']:4.0%} error {error}  pooled ratio "
            f"{s['ratio_pooled']:.2f}  bias removed {s['bias_removed']:5.2f}  kept {s['kept']:.2f}  correlation "
            f"{s['correlation']:.2f}  AUC {s['auc']:.3f}  AP {s['average_precision']:.3f}  "
            f"precision {s['precision_flagged']:.3f}"
        )
    there = story.asked["weights", "flag_rate_ratio", 0.8].summary("flag_rate_ratio", 0.8)
    kept = story.resemblance_kept_at(there["ratio_pooled"])
    say(
        f"  at the weights' ratio {there['ratio_pooled']:.2f}: weights keep {there['kept']:.2f}, resemblance {kept:.2f}"
    )


def summary(story: Story) -> dict[str, Any]:
    """One data set in the object of --json."""
    found: dict[str, Any] = {
        "base": story.base.summary("flag_rate_ratio", 1.0),
        "fewest_flagged": story.flagged_in_all(),
    }
    for (method, way, request), judged in story.asked.items():
        found.setdefault(f"{way}={request:g}", {})[method] = judged.summary(way, request)
    for request in (0.8, 0.9):
        entry = found[f"flag_rate_ratio={request:g}"]
        entry["weights_kept_at_equal_ratio"] = story.weights_kept_at(entry["resemblance"]["ratio_pooled"])
        entry["resemblance_kept_at_weights_ratio"] = story.resemblance_kept_at(entry["weights"]["ratio_pooled"])
        enough = story.flagged_in_all() >= ENOUGH
        entry["pooled_error"] = abs(entry["resemblance"]["ratio_pooled"] - request) if enough else None
    return found


def main() -> None:
    """Parse the command line, run, print."""
    names = ["credit", "communities", "breastw", *list_scenarios()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    told = Parallel(n_jobs=options.n_jobs, return_as="generator")(
        delayed(tell)(name, options.splits) for name in options.data
    )
    results = {}
    for name, story in zip(options.data, told, strict=True):
        results[name] = summary(story)
        if not options.json:
            show(story, lambda line: print(line, flush=True))
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
