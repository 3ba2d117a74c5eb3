"""What is said of a case, in each place where it can be asked, and what is true of it in the population."""

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from matrix_design import Case
from matrix_people import SHARE, People, judge
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression

from evenout import BlindRepair, FairnessMonitor, FairOutlierEnsemble, Groups, Resemblance, ScoreRepair, audit
from evenout.core.types import FloatArray
from evenout.exceptions import UnknownOutcomeWarning
from evenout.out_of_core.parquet import open_folder

ASKED = 0.8
BATCHES = 4  # that a watch sees
FINE = 30  # parts of a number within which an audit's rows are as good as alike in it
TRUSTED = [
    "sklearn.linear_model._logistic.LogisticRegression",
    "sklearn.ensemble._iforest.IsolationForest",
    "sklearn.ensemble._iforest.IsolationForest.score_samples",
    "sklearn.tree._tree.Tree",
]


@dataclass(frozen=True)
class Claim:
    """A number that is stated, with its interval (NaN where none is stated), and the truth."""

    name: str
    value: float
    low: float
    high: float
    truth: float

    @property
    def holds(self) -> bool:
        """Whether the interval has the truth."""
        return bool(self.low <= self.truth <= self.high)


@dataclass(frozen=True)
class Statement:
    """All that is said of a case.

    Parameters
    ----------
    claims : list of Claim
    asked, got : float
        What was asked for, and what the population gets of it; NaN where nothing was.
    met, gap, unknown : bool
        Whether the request is said to be met, a gap to be there, and the outcome to be unknown.
    p : dict
        p-values of tests of "no gap".
    alarm : bool
        Whether a watch raised an alarm.
    shown : str
        What else there is to see.
    """

    claims: list[Claim]
    asked: float = float("nan")
    got: float = float("nan")
    met: bool = False
    gap: bool = True
    unknown: bool = False
    p: dict[str, float] = field(default_factory=dict)
    alarm: bool = False
    shown: str = ""

    def fingerprint(self) -> tuple[Any, ...]:
        """What a reader sees, to tell two statements apart."""
        said = [(c.name, round(c.value, 9), round(c.low, 9), round(c.high, 9)) for c in self.claims]
        tests = repr({name: round(p, 9) for name, p in self.p.items()})
        return repr(said), self.met, self.gap, self.unknown, tests, self.shown


def settings(case: Case) -> dict[str, Any]:
    """Of the estimator."""
    found: dict[str, Any] = {"contamination": SHARE}
    if case.request == "alpha":
        found["alpha"] = 5000.0
    else:
        found[case.request] = ASKED
    if case.groups in ("bands", "each"):
        found["groups"] = Groups(continuous=("age",)) if case.groups == "bands" else Groups(cross=False)
    if case.notion != "parity":
        found["fairness"] = "individual" if case.notion == "individual" else "equal_opportunity"
    return found


def ensemble(case: Case, **more: Any) -> FairOutlierEnsemble:
    """An ensemble of ready columns; individual fairness compares features, so that detectors must see these."""
    forests = [(f"forest {i}", IsolationForest(n_estimators=15, random_state=i)) for i in range(2)]
    detectors = forests if case.notion == "individual" else "precomputed"
    told = Resemblance(LogisticRegression(), "free" if case.correction == "both" else None)
    chosen = (
        settings(case) | {"correction": "weights" if case.correction == "weights" else told, "random_state": 0} | more
    )
    return FairOutlierEnsemble(detectors, **chosen)


def state(case: Case, sample: People, fresh: People) -> Statement:
    """Fit or measure the case on the sample, and hold what is said against fresh rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = _STATES.get(case.place, _of_ensemble)(case, sample, fresh)
    return replace(found, unknown=any(issubclass(w.category, UnknownOutcomeWarning) for w in caught))


def _fitted(case: Case, sample: People) -> FairOutlierEnsemble:
    beside = sample.beside(case)
    if case.place == "folder":
        return _over_folder(case, sample)
    if case.place == "dask":
        return _over_dask(case, sample)
    if case.place == "update":
        first, rest = sample.at(slice(0, None, 2)), sample.at(slice(1, None, 2))
        model = ensemble(case).fit(first.S, **first.beside(case))
        return model.update(rest.S, sensitive_features=rest.sensitive(case))
    if case.place == "loaded":
        from evenout.persistence import load_model, save_model

        asked = dict.fromkeys(("bias_reduction", "flag_rate_ratio", "alpha"))
        other = {"alpha": 100.0} if case.request != "alpha" else {"bias_reduction": ASKED}
        with warnings.catch_warnings():  # those of the model that is asked for otherwise in the end
            warnings.simplefilter("ignore")
            model = ensemble(case, **(asked | other)).fit(sample.S, **beside)
        with tempfile.TemporaryDirectory() as folder:
            save_model(model, Path(folder) / "model.skops", updatable=True)
            model = load_model(Path(folder) / "model.skops", trusted=TRUSTED)
        return model.at(**{case.request: settings(case)[case.request]})
    return ensemble(case).fit(sample.S, **beside)


def _over_folder(case: Case, sample: People) -> FairOutlierEnsemble:
    """Half of the rows are the reference."""
    names = [f"score_{i}" for i in range(sample.S.shape[1])]
    frame = sample.columns.drop(columns="person").assign(**dict(zip(names, sample.S.T, strict=True)))
    columns: dict[str, Any] = {"features": names, "probable": case.probable}
    columns["sensitive"] = ["f", "m"] if case.probable else list(case.attributes)
    columns["given"] = [case.justifies] if case.given != "none" else []
    if case.labelled:
        frame, columns["label"] = frame.assign(label=sample.labels(case)), "label"
    with tempfile.TemporaryDirectory() as folder:
        for i, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
            frame.iloc[rows].to_parquet(Path(folder) / f"{i}.parquet", index=False)
        with open_folder(folder, **columns) as engine:
            model = ensemble(case, reference_size=len(frame) // 2)
            return model.fit_partitions(engine, sufficient=case.groups == "sufficient")


def _over_dask(case: Case, sample: People) -> FairOutlierEnsemble:
    import dask
    import dask.dataframe as dd
    import pandas as pd

    from evenout import GroupProbabilities

    def lazy(values: Any) -> Any:
        return dd.from_pandas(values, npartitions=3, sort=False)

    beside = sample.beside(case)
    if case.probable:
        shown = lazy(beside["sensitive_features"].frame)
        beside["sensitive_features"] = GroupProbabilities(shown, sufficient=case.groups == "sufficient")
    else:
        beside["sensitive_features"] = lazy(beside["sensitive_features"])
    for name in ("given", "labels", "label_propensity"):
        if name in beside:
            column = beside[name]
            beside[name] = lazy(column if hasattr(column, "iloc") else pd.Series(column, name=name))
    with dask.config.set(scheduler="synchronous"):
        return ensemble(case).fit(lazy(pd.DataFrame(sample.S, columns=list("abcd"))), **beside)


def _claims(case: Case, sample: People, fresh: People, model: Any, y: FloatArray, t: FloatArray) -> list[Claim]:
    before, after = judge(case, sample, fresh, t), judge(case, sample, fresh, y)
    low, high = model.flag_rate_ratio_interval_
    claims = [Claim("flag_rate_ratio", model.flag_rate_ratio_, low, high, after.ratio)]
    if not np.isnan(model.bias_reduction_) and case.notion != "individual":
        removed = 1.0 - after.bias / before.bias
        low, high = model.bias_reduction_interval_
        claims.append(Claim("bias_reduction", model.bias_reduction_, low, high, removed))
    return claims


def _requested(case: Case, model: Any, claims: list[Claim]) -> Statement:
    got = {claim.name: claim.truth for claim in claims}.get(case.request, float("nan"))
    asked = float("nan") if case.request == "alpha" else ASKED
    return Statement(claims, asked, got, bool(model.request_met_), bool(model.gap_detected_))


def _of_ensemble(case: Case, sample: People, fresh: People) -> Statement:
    model = _fitted(case, sample)
    y, t = model.outlier_scores(fresh.S), model.base_scores(fresh.S)
    return _requested(case, model, _claims(case, sample, fresh, model, y, t))


def _of_blind(case: Case, sample: People, fresh: People) -> Statement:
    repair = BlindRepair(**settings(case), classifier=LogisticRegression(), random_state=0)
    repair.fit(sample.S.mean(axis=1), sample.S, **sample.beside(case))
    t = fresh.S.mean(axis=1)
    return _requested(case, repair, _claims(case, sample, fresh, repair, repair.transform(t, fresh.S), t))


def _of_score_repair(case: Case, sample: People, fresh: People) -> Statement:
    repair = ScoreRepair(bias_reduction=ASKED, groups=settings(case).get("groups"))
    repair.fit(sample.S.mean(axis=1), sensitive_features=sample.sensitive(case))
    t = fresh.S.mean(axis=1)
    y = repair.transform(t, sensitive_features=fresh.sensitive(case))
    before, after = judge(case, sample, fresh, t), judge(case, sample, fresh, y)
    nan, removed = float("nan"), 1.0 - after.bias / before.bias
    claims = [Claim("bias_reduction", repair.bias_reduction_, nan, nan, removed)] if repair.gap_detected_ else []
    met = repair.bias_reduction_ >= ASKED - 1e-9
    return Statement(claims, ASKED, removed, met, repair.gap_detected_, shown=f"{y.sum():.9g}")


def _of_monitor(case: Case, sample: People, fresh: People) -> Statement:
    model = ensemble(case).fit(sample.S, **sample.beside(case))
    watch = FairnessMonitor.of(model)
    y, t = model.outlier_scores(fresh.S), model.base_scores(fresh.S)
    claims = _claims(case, sample, fresh, model, y, t)
    if watch.settings.flag_rate_ratio is not None:
        claims.append(Claim("promise", claims[0].value, watch.settings.flag_rate_ratio, 1.0, claims[0].truth))
    for rows in np.array_split(np.arange(len(y)), BATCHES):
        watch.update(y[rows], sensitive_features=fresh.at(rows).sensitive(case))
    return replace(_requested(case, model, claims), alarm=watch.alarm)


def _of_audit(case: Case, sample: People, fresh: People) -> Statement:
    beside = sample.beside(case)
    if case.notion == "individual":
        beside["X"] = sample.S
    drawn = {"resamples": 300, "contamination": SHARE}
    own = {name: value for name, value in settings(case).items() if name == "groups"}
    call: Callable[..., Any] = audit
    found = call(sample.S.mean(axis=1), **beside, **drawn, **own)
    audits = {"": found} if hasattr(found, "measures") else dict(found)
    claims: list[Claim] = []
    y, p = fresh.S.mean(axis=1), dict[str, float]()
    for name, one in audits.items():
        part = replace(case, groups={"sex": "hard", "region": "regions"}.get(name, case.groups))
        for measure, about in (
            ("flag_rate_ratio", replace(part, given="none", notion="parity")),
            ("demographic_parity_corrected", replace(part, given="none", notion="parity")),
            ("conditional_parity_corrected", replace(part, notion="parity")),
            ("true_positive_rate_gap", replace(part, given="none")),
        ):
            stated = [m for m in one.measures if m.measure == measure and not m.group]
            if not stated:
                continue
            truth = judge(about, sample, fresh, y, FINE, 1)
            true = {"flag_rate_ratio": truth.ratio, "true_positive_rate_gap": truth.difference}.get(measure, truth.bias)
            claims.append(Claim(f"{measure} {name}".strip(), stated[0].value, stated[0].low, stated[0].high, true))
        p |= {
            f"{m.measure} {name}".strip(): m.p
            for m in one.measures
            if m.measure in ("flag_rate_test", "mean_score_test", "strata_test", "true_positive_rate_test")
        }
    return Statement(claims, p=p, shown=str(found))


_STATES: dict[str, Callable[[Case, People, People], Statement]] = {
    "blind": _of_blind, "score_repair": _of_score_repair, "monitor": _of_monitor, "audit": _of_audit,
}  # fmt: skip
