"""Is the base score worth being fair to? Detection on unseen halves: pools of evenout beside what users run.

For every bundled table and scenario, fitted on one half and judged on the other: AUC and average precision (AP) of the
base score and of the fair score with 80 % of the bias removed, for each named pool, and of scikit-learn's isolation
forest and seven detectors of PyOD on standardised features. Means over tables, and wins and losses.

    python benchmarks/target.py                        # everything
    python benchmarks/target.py --quick --json         # one split, at most 2000 rows per half
    python benchmarks/target.py --data credit --splits 2

``removed`` is the share of the base score's corrected gap between groups that is gone on the judged halves. Fair scores
compare at like shares alone: where the groups really differ (base_rate, and the tables whose groups are sampled), more
removed is more detection lost.

Tables of more than 12,000 rows are cut to 12,000, drawn anew for every split. Peers get the z-scores of
scikit-learn's StandardScaler and are otherwise as their users find them. CBLOF cannot divide some tables into
clusters; there it is left out, and so is the table from its comparison.
"""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.preprocessing import StandardScaler

from evenout import FairOutlierEnsemble, Groups
from evenout.core.types import AnyArray, FloatArray, IntArray
from evenout.datasets import list_datasets, list_scenarios
from evenout.metrics import demographic_parity
from halves import load

POOLS = ("paper", "diverse", "default")
PEERS = ("IsolationForest", "ECOD", "COPOD", "HBOS", "PCA", "KNN", "LOF", "CBLOF")
ROWS = 12_000
BIAS_REDUCTION = 0.8
MEASURES = ("auc", "ap")
LIKE_SHARE = 0.7  # removed by every pool: fair scores compare there

Half = tuple[FloatArray, AnyArray, IntArray]
Figures = dict[str, tuple[float, float]]  # AUC and AP, or the gap before and after, by method


def halve(name: str, split: int, rows: int) -> tuple[Half, Half]:
    """Two random halves with the same share of each group: features, labels, groups."""
    X, y, groups = load(name, split)
    rng = np.random.default_rng(1000 + split)
    chosen = rng.permutation(len(X))[:rows]
    order = chosen[np.lexsort((rng.random(len(chosen)), groups[chosen]))]
    first, second = order[0::2], order[1::2]
    return (X[first], y[first], groups[first]), (X[second], y[second], groups[second])


def quality(y: AnyArray, scores: FloatArray) -> tuple[float, float]:
    """AUC and average precision."""
    return float(roc_auc_score(y, scores)), float(average_precision_score(y, scores))


def gap(half: Half, scores: FloatArray) -> float:
    """Corrected scale-free gap between the groups."""
    return demographic_parity(scores, sensitive_features=half[2], scale_free=True, corrected=True)


def judge_pools(fit: Half, judged: Half, split: int, *, standardize: bool) -> tuple[Figures, Figures]:
    """Base and fair score of every pool, and the gap in both."""
    found: Figures = {}
    gaps: Figures = {}
    for pool in POOLS:
        model = FairOutlierEnsemble(
            pool,
            standardize=standardize,
            bias_reduction=BIAS_REDUCTION,
            groups=Groups(min_size=10),
            random_state=split,
        )
        model.fit(fit[0], sensitive_features=fit[2])
        base, fair = model.base_scores(judged[0]), model.outlier_scores(judged[0])
        found[pool], found[f"{pool} fair"] = quality(judged[1], base), quality(judged[1], fair)
        gaps[pool] = gap(judged, base), gap(judged, fair)
    return found, gaps


def peer(name: str, seed: int) -> Any:
    """A detector as its users find it; fitted ones say how outlying rows are, higher = more."""
    if name == "IsolationForest":
        return IsolationForest(random_state=seed)
    from importlib import import_module

    kind = getattr(import_module(f"pyod.models.{name.lower()}"), name)
    return kind(random_state=seed) if name in ("PCA", "CBLOF") else kind()


def judge_peers(fit: Half, judged: Half, split: int) -> Figures:
    """Every other detector that can be fitted on this table."""
    scaler = StandardScaler().fit(fit[0])
    known, new = scaler.transform(fit[0]), scaler.transform(judged[0])
    found: Figures = {}
    for name in PEERS:
        try:
            model = peer(name, split).fit(known)
        except ValueError as error:
            if "cluster" not in str(error):
                raise
            continue
        sign = -1.0 if name == "IsolationForest" else 1.0
        scores = sign * model.decision_function(new)
        found[name] = quality(judged[1], np.nan_to_num(scores))  # PCA divides by variances of 0 on some tables
    return found


def judge(name: str, splits: int, rows: int, standardize: bool) -> tuple[Figures, Figures]:
    """Means over the splits of one table: AUC and AP of every method, gaps of every pool."""
    warnings.simplefilter("ignore")  # groups too small, gaps within noise: not what is judged here
    each: dict[str, list[tuple[float, float]]] = defaultdict(list)
    gaps: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for split in range(splits):
        fit, judged = halve(name, split, rows)
        found, before_after = judge_pools(fit, judged, split, standardize=standardize)
        for method, pair in (found | judge_peers(fit, judged, split)).items():
            each[method].append(pair)
        for pool, pair in before_after.items():
            gaps[pool].append(pair)
    return _means(each), _means(gaps)


def _means(each: dict[str, list[tuple[float, float]]]) -> Figures:
    return {
        method: (
            float(np.mean([first for first, _ in pairs])),
            float(np.mean([second for _, second in pairs])),
        )
        for method, pairs in each.items()
    }


def compare(tables: dict[str, Figures], gaps: dict[str, Figures]) -> dict[str, Any]:
    """Means over all tables, and each pool's base score against each peer on the tables that the peer can do."""
    methods = [*POOLS, *(f"{pool} fair" for pool in POOLS), *PEERS]
    means = {
        method: {
            measure: float(np.mean([table[method][i] for table in tables.values() if method in table]))
            for i, measure in enumerate(MEASURES)
        }
        for method in methods
    }
    against: dict[str, Any] = {}
    for pool in POOLS:
        against[pool] = {name: _duel(tables, pool, name) for name in PEERS}
    own, done = means["default"], [against["default"][name] for name in PEERS]
    reached = {
        "auc_beats_each": all(duel["auc"]["difference"] > 0 for duel in done),
        "ap_at_least_best": own["ap"] >= max(means[name]["ap"] for name in PEERS),
    }
    removed = {
        table: {pool: 1.0 - after / before for pool, (before, after) in found.items()} for table, found in gaps.items()
    }
    alike = [table for table, shares in removed.items() if min(shares.values()) >= LIKE_SHARE]
    fair = {
        pool: {
            measure: float(np.mean([tables[table][f"{pool} fair"][i] for table in alike])) if alike else float("nan")
            for i, measure in enumerate(MEASURES)
        }
        for pool in POOLS
    }
    found = {"means": means, "against": against, "reached": reached, "tables": tables, "removed": removed}
    return found | {"alike": {"tables": alike, "fair": fair}}


def _duel(tables: dict[str, Figures], pool: str, name: str) -> dict[str, dict[str, float]]:
    """Wins and losses by more than .001, and the mean difference, on the tables that both can do."""
    both = [table for table in tables.values() if name in table]
    result = {}
    for i, measure in enumerate(MEASURES):
        gain = np.array([table[pool][i] - table[name][i] for table in both])
        result[measure] = {
            "wins": int((gain > 0.001).sum()),
            "losses": int((gain < -0.001).sum()),
            "difference": float(gain.mean()) if len(gain) else float("nan"),
        }
    return result


def show(result: dict[str, Any], say: Callable[[str], None]) -> None:
    """Tables for reading."""
    shown = [*POOLS, *(f"{pool} fair" for pool in POOLS), *PEERS]
    say(f"{'AUC / AP':21s}" + "".join(f"{name[:13]:>14s}" for name in shown))
    rows = {**result["tables"], "mean": {m: (v["auc"], v["ap"]) for m, v in result["means"].items()}}
    for table, found in rows.items():
        cells = [f"{found[m][0]:.3f}/{found[m][1]:.3f}" if m in found else "-" for m in shown]
        say(f"{table:21s}" + "".join(f"{cell:>14s}" for cell in cells))
    say(
        "\nremoved, of an 80 % asked for: "
        + "; ".join(
            f"{table} " + " ".join(f"{pool} {share:.0%}" for pool, share in found.items())
            for table, found in result["removed"].items()
        )
    )
    alike = result["alike"]
    say(f"\nfair scores where every pool removes {LIKE_SHARE:.0%} or more ({', '.join(alike['tables'])}):")
    say("; ".join(f"{pool} AUC {fair['auc']:.3f} AP {fair['ap']:.3f}" for pool, fair in alike["fair"].items()))
    for pool in POOLS:
        duels = result["against"][pool].items()
        parts = [
            f"{name} AUC {d['auc']['wins']}:{d['auc']['losses']} ({d['auc']['difference']:+.3f}) "
            f"AP {d['ap']['wins']}:{d['ap']['losses']} ({d['ap']['difference']:+.3f})"
            for name, d in duels
        ]
        say(f"\n{pool} against: " + "; ".join(parts))
    say(f"\nreached: {result['reached']}")


def main() -> None:
    """Parse the command line, run, print."""
    names = [*list_datasets(), *list_scenarios()]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--raw", action="store_true", help="evenout's pools see features as they are")
    parser.add_argument("--quick", action="store_true", help="one split, at most 2000 rows per half")
    parser.add_argument("--n-jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    splits, rows = (1, 4000) if options.quick else (options.splits, ROWS)
    judged = Parallel(n_jobs=options.n_jobs)(
        delayed(judge)(name, splits, rows, not options.raw) for name in options.data
    )
    qualities, gaps = zip(*judged, strict=True)
    named = (dict(zip(options.data, figures, strict=True)) for figures in (qualities, gaps))
    result = compare(*named)
    show(result, lambda line: print(line, flush=True))
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
