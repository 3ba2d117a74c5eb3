"""Fairness on rows that were never seen: fit on one half, judge on the other, over many splits.

For every data set and scenario: what share of the group bias goes on the judged half when 50, 80 or 95 % were
asked for, and at which
detection quality. ``achieved = 1 - (mean corrected gap after) / (mean corrected gap before)`` over the splits.

    python benchmarks/frontier.py                      # everything, about ten minutes on two cores
    python benchmarks/frontier.py --data credit --splits 3

Methods, all with the same detectors' scores and the same target (the combination of the paper's detectors):

paper        the published problem, alpha chosen on the fitted rows
evenout      what the tool does: the target as a column, alpha chosen by what held-out rows show, no price for nothing
nonnegative  the same with weights of at least 0
diverse      the same with one more detector per feature
repair       group-aware repair of the target (uses the group of judged rows)
FairLOF      a fair detector of its own, at its own bias, evening out and as printed (uses the group of judged rows)
oracle       evenout's weights at the alpha that the other splits' judged halves show to be right: the floor
set by noise
"""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from evenout import FairOutlierEnsemble, Groups
from evenout.core.flags import flag_threshold, rate_ratio
from evenout.core.path import Target, TradeoffPath, choose, least_alpha
from evenout.core.registry import weighted_notions
from evenout.core.types import FloatArray
from evenout.datasets import list_datasets, list_scenarios
from evenout.detectors.fairlof import FairLOF
from evenout.metrics import average_precision, demographic_parity, roc_auc
from evenout.repair import ScoreRepair
from halves import Pool, Split, cut

REQUESTS = (0.5, 0.8, 0.95)
CURVE = 40  # alphas, or strengths of repair, at which the trade-off on the judged half is drawn
LOF_20 = 3  # its column in the paper's pool
PARITY = weighted_notions({"demographic_parity": 1.0})
SPURIOUS = ("variance", "shift", "measurement_noise")
FLAGGED = 0.1
FAIRLOF = ("lof_gap", "lof_auc", "gap", "auc", "printed_gap", "printed_auc")


@dataclass
class Curve:
    """Judged along a method's parameter: one row per split."""

    gap: list[FloatArray] = field(default_factory=list)
    auc: list[FloatArray] = field(default_factory=list)
    precision: list[FloatArray] = field(default_factory=list)

    def add(self, split: Split, scores: FloatArray) -> None:
        """Judge scores of shape (rows, points)."""
        columns = scores.T
        self.gap.append(np.array([gap(split, y) for y in columns]))
        self.auc.append(np.array([auc(split, y) for y in columns]))
        self.precision.append(np.array([average_precision(split.judge.y, y) for y in columns]))

    def at(self, reduction: float, before: float) -> tuple[float, float] | None:
        """Mean AUC and average precision where the mean gap has first fallen by ``reduction``, if it ever does."""
        reached = 1.0 - np.mean(self.gap, axis=0) / before
        if not (reached >= reduction).any():
            return None
        first = int((reached >= reduction).argmax())
        if first == 0:
            return float(np.mean(self.auc, axis=0)[0]), float(np.mean(self.precision, axis=0)[0])
        share = (reduction - reached[first - 1]) / (reached[first] - reached[first - 1])
        ends = np.array([first - 1, first])
        weights = np.array([1 - share, share])
        return float(weights @ np.mean(self.auc, axis=0)[ends]), float(weights @ np.mean(self.precision, axis=0)[ends])


@dataclass
class Story:
    """Results for one data set."""

    name: str
    before: list[float] = field(default_factory=list)
    base_auc: list[float] = field(default_factory=list)
    asked: dict[tuple[str, float], list[tuple[float, float]]] = field(default_factory=partial(defaultdict, list))
    curves: dict[str, Curve] = field(default_factory=partial(defaultdict, Curve))
    flags: list[tuple[FloatArray, FloatArray]] = field(default_factory=list)
    fairlof: list[FloatArray] = field(default_factory=list)  # gap and AUC of LOF, FairLOF, as printed

    def achieved(self, method: str, request: float) -> float:
        """Share of the corrected gap that is gone on the judged halves, on average."""
        return 1.0 - float(np.mean([g for g, _ in self.asked[method, request]]) / np.mean(self.before))

    def reachable(self, method: str, request: float) -> bool:
        """Whether some parameter of the method gets there on the judged halves."""
        return bool((1.0 - np.mean(self.curves[method].gap, axis=0) / np.mean(self.before)).max() >= request)

    def oracle(self, request: float) -> float:
        """Read evenout's curve at the point that all other splits show to be right."""
        gaps, before = np.array(self.curves["evenout"].gap), np.array(self.before)
        after = []
        for i in range(len(gaps)):
            others = np.arange(len(gaps)) != i
            reached = 1.0 - gaps[others].mean(axis=0) / before[others].mean()
            after.append(gaps[i, int(np.abs(reached - request).argmin())])
        return 1.0 - float(np.mean(after) / before.mean())


def gap(split: Split, scores: FloatArray) -> float:
    """Corrected scale-free gap of the judged half."""
    return demographic_parity(scores, sensitive_features=split.judge.groups, scale_free=True, corrected=True)


def auc(split: Split, scores: FloatArray) -> float:
    """Area under the ROC curve of the judged half."""
    return roc_auc(split.judge.y, scores)


def judge_path(story: Story, split: Split, method: str, pool: Pool, path: TradeoffPath, target: Target) -> None:
    """Ask for each reduction, and draw the whole curve."""
    for request in REQUESTS:
        alpha = _chosen(path, request, target)
        y = pool.judged(path, np.array([alpha]))[:, 0]
        story.asked[method, request].append((gap(split, y), auc(split, y)))
    story.curves[method].add(split, pool.judged(path, np.r_[0.0, path.grid(CURVE)]))


def _chosen(path: TradeoffPath, request: float, target: Target) -> float:
    """The alpha that the tool takes; for the paper's way the one that the fitted rows show to be right."""
    if path.method == "anchored":
        return choose(path, request, target).alpha
    found = least_alpha(path, lambda alphas: path.reduction(alphas, target), request)
    return float(path.grid()[-1]) if found is None else found


def judge_repair(story: Story, split: Split) -> None:
    """Repair the target with the groups of the judged rows."""

    def repaired(**settings: Any) -> FloatArray:
        repair = ScoreRepair(groups=Groups(min_size=10), **settings)
        repair.fit(split.paper.model.target_, sensitive_features=split.fit.groups)
        return repair.transform(split.paper.Z[:, -1], sensitive_features=split.judge.groups)

    for request in REQUESTS:
        y = repaired(bias_reduction=request)
        story.asked["repair", request].append((gap(split, y), auc(split, y)))
    strengths = np.linspace(0.0, 1.0, CURVE // 2)
    story.curves["repair"].add(split, np.column_stack([repaired(strength=float(s)) for s in strengths]))


def judge_flags(story: Story, split: Split, n_threads: int) -> None:
    """Ask for a flag-rate ratio of 0.8; flag the judged rows at the threshold of the fitted ones."""
    diverse = split.diverse.model
    model = FairOutlierEnsemble(**diverse.get_params(deep=False) | {"flag_rate_ratio": 0.8, "n_jobs": n_threads})
    model.fit(split.fit.X, sensitive_features=split.fit.groups)

    def rates(fitted: FloatArray, judged: FloatArray) -> FloatArray:
        over = judged > flag_threshold(fitted, FLAGGED)
        return np.array([over[split.judge.groups == group].mean() for group in range(split.n_groups)])

    before = rates(diverse.target_, split.diverse.Z[:, -1])
    story.flags.append((before, rates(model.outlier_scores_, model.outlier_scores(split.judge.X))))


def judge_fairlof(story: Story, split: Split) -> None:
    """FairLOF has no trade-off to choose: its own bias beside that of LOF with as many neighbours."""
    scores = [split.paper.Z[:, LOF_20]]
    for direction in ("even", "printed"):
        model = FairLOF(n_neighbors=20, direction=direction)
        model.fit(split.fit.X, sensitive_features=split.fit.groups)
        scores.append(model.outlier_scores(split.judge.X, sensitive_features=split.judge.groups))
    story.fairlof.append(np.array([value for y in scores for value in (gap(split, y), auc(split, y))]))


def tell(name: str, splits: int, combination: str, n_threads: int) -> Story:
    """Run every method on every split of one data set."""
    warnings.simplefilter("ignore")  # what cannot be reached or detected is in the table
    story = Story(name)
    for number in range(splits):
        split = cut(name, number, combination, n_threads)
        story.before.append(gap(split, split.paper.Z[:, -1]))
        story.base_auc.append(auc(split, split.paper.Z[:, -1]))
        evenout, cross = split.paper.model.path_, split.paper.model.path_.cross
        judge_path(story, split, "paper", split.paper, TradeoffPath(cross, PARITY, method="published"), "training")
        judge_path(story, split, "evenout", split.paper, evenout, "unseen")
        nonnegative = TradeoffPath(cross, PARITY, noise_aware=True, constraint="nonnegative")
        judge_path(story, split, "nonnegative", split.paper, nonnegative, "unseen")
        judge_path(story, split, "diverse", split.diverse, split.diverse.model.path_, "unseen")
        judge_repair(story, split)
        judge_flags(story, split, n_threads)
        judge_fairlof(story, split)
    return story


def spread(values: list[float] | FloatArray) -> str:
    """Mean with the interval that holds nine of ten splits."""
    low, high = np.percentile(values, [5, 95])
    return f"{np.mean(values):.3f} [{low:.3f}, {high:.3f}]"


def show(story: Story, say: Callable[[str], None]) -> None:
    """A table for one data set."""
    before = float(np.mean(story.before))
    say(f"\n{story.name}: corrected gap before {spread(story.before)}, base AUC {spread(story.base_auc)}")
    for method in story.curves:
        cells = []
        for request in REQUESTS:
            auc = np.mean([a for _, a in story.asked[method, request]])
            mark = "" if story.reachable(method, request) else "*"
            cells.append(f"asked {request:.0%} got {story.achieved(method, request):.0%}{mark} AUC {auc:.3f}")
        equal = story.curves[method].at(0.8, before)
        there = "never reached" if equal is None else f"AUC {equal[0]:.3f} AP {equal[1]:.3f}"
        say(f"  {method:12s} {'   '.join(cells)}   at 80 % on judged rows: {there}")
    say(f"  {'oracle':12s} " + "   ".join(f"asked {r:.0%} got {story.oracle(r):.0%}" for r in REQUESTS))
    for method in ("evenout", "diverse"):
        after, quality = np.transpose(story.asked[method, 0.8])
        removed, change = 1.0 - after / np.array(story.before), quality - np.array(story.base_auc)
        say(f"  {method} asked 80 %, split by split: removed {spread(removed)}, AUC change {spread(change)}")
    pairs = np.mean(story.fairlof, axis=0).reshape(-1, 2)
    named = zip(("LOF", "FairLOF", "FairLOF as printed"), pairs, strict=True)
    say("  " + ", ".join(f"{name} gap {found:.3f} AUC {quality:.3f}" for name, (found, quality) in named))
    old, new = (np.mean([pair[i] for pair in story.flags], axis=0) for i in (0, 1))
    each = np.mean([rate_ratio(pair[1]) for pair in story.flags])
    say(
        f"  flag-rate ratio asked 0.8 (diverse): {rate_ratio(old):.2f} before, {rate_ratio(new):.2f} after "
        f"(of rates averaged over splits; mean of each split's own ratio {each:.2f})"
    )


def summary(stories: dict[str, Story]) -> dict[str, object]:
    """The object of --json."""
    calibrated = [s for n, s in stories.items() if n in ("communities", "breastw", "credit", *list_scenarios())]
    errors: dict[str, float] = {}
    for method in ("paper", "evenout"):
        missed = [abs(s.achieved(method, r) - r) for s in calibrated for r in REQUESTS if s.reachable(method, r)]
        errors[method] = float(np.mean(missed)) if missed else float("nan")
    floor = [abs(s.oracle(r) - r) for s in calibrated for r in REQUESTS if s.reachable("evenout", r)]
    errors["oracle"] = float(np.mean(floor)) if floor else float("nan")

    def at_80(names: tuple[str, ...]) -> dict[str, float | None]:
        chosen = [stories[name] for name in names if name in stories]
        result: dict[str, float | None] = {}
        if chosen:
            result["base"] = float(np.mean([np.mean(s.base_auc) for s in chosen]))
        for method in ("paper", "evenout", "nonnegative", "diverse", "repair"):
            found = [s.curves[method].at(0.8, float(np.mean(s.before))) for s in chosen]
            known = [auc for pair in found if pair is not None for auc in pair[:1]]
            result[method] = float(np.mean(known)) if found and len(known) == len(found) else None
        return result

    per_dataset = {
        name: {
            "base_auc": float(np.mean(s.base_auc)),
            "gap_before": float(np.mean(s.before)),
            "achieved": {m: {str(r): s.achieved(m, r) for r in REQUESTS} for m in s.curves},
            "auc": {m: {str(r): float(np.mean([a for _, a in s.asked[m, r]])) for r in REQUESTS} for m in s.curves},
            "fairlof": dict(zip(FAIRLOF, np.mean(s.fairlof, axis=0).tolist(), strict=True)),
            "flag_rate_ratio": float(rate_ratio(np.mean([after for _, after in s.flags], axis=0))),
        }
        for name, s in stories.items()
    }
    equal = {
        "scenarios": at_80(SPURIOUS),
        "credit": at_80(("credit",)),
        "credit_with_other": at_80(("credit_with_other",)),
    }
    return {"calibration_error": errors, "auc_at_80_unseen": equal, "per_dataset": per_dataset}


def main() -> None:
    """Parse the command line, run, print."""
    names = [*[n for n in list_datasets() if n != "credit"], "credit", "credit_with_other", *list_scenarios()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--combination", choices=["average", "maximum"], default="average")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    told = Parallel(n_jobs=options.n_jobs, return_as="generator")(
        delayed(tell)(name, options.splits, options.combination, 1) for name in options.data
    )
    stories = {}
    for name, story in zip(options.data, told, strict=True):
        stories[name] = story
        show(story, lambda line: print(line, flush=True))
    result = summary(stories)
    print("\n* some of it is out of the method's reach on the judged rows")
    print("calibration error, mean |achieved - asked|:", result["calibration_error"])
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
