"""Collect what a report shows, render it, write it."""

import json
import math
import os
import re
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from evenout.core.flags import flagged_share
from evenout.core.types import BoolArray, FloatArray
from evenout.detectors.adapt import GroupAware
from evenout.estimator import FairOutlierEnsemble
from evenout.exceptions import from_extra
from evenout.groups.model import read_crossed
from evenout.groups.read import EVERY, Codes, read_groups
from evenout.groups.rules import Groups
from evenout.metrics import read_labels
from evenout.outcome import gap_words, number, percent
from evenout.pages import policy, safe, static, style, template, versions
from evenout.report import words
from evenout.report.compared import collect_compared
from evenout.report.data import Group, Labels, Origin, Person, ReportData, Score, Step
from evenout.report.people import EDGES, Fitted, People, Section, list_moves, ranks_of, shortened
from evenout.report.privacy import SMALLEST_CELL
from evenout.report.why import gap_features, reasoned_people
from evenout.storage.output import atomic_file
from evenout.tables.encoder import TableEncoder
from evenout.tables.parameters import without_old_names

SECTIONS = (  # rows of the page; those of one row stand side by side
    (Section("tradeoff"),),
    (Section("groups"),),
    (Section("compared", collect_compared),),
    (Section("detectors"), Section("people")),
    (Section("why", gap_features),),
    (Section("reasons", reasoned_people),),
    (Section("limits"),),
    (Section("origin"),),
)
_GRID = 38  # with 0 and the chosen alpha: 40 steps
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "vl-convert-python")


def collect(
    model: FairOutlierEnsemble, *, X: Any, sensitive_features: Any, labels: Any = None, ids: Any = None,
    given: Any = None, show_small_cells: bool = False, title: str | None = None, reasons: int = 0,
    table: TableEncoder | None = None, date: datetime | None = None, **origin: str | None,
) -> ReportData:  # fmt: skip
    """Measure everything that the report of a fitted model shows; the parameters are those of `write_report`."""
    check_is_fitted(model)
    smallest, result = 0 if show_small_cells else SMALLEST_CELL, model._result
    aware = any(isinstance(part, GroupAware) for part in result.scores.pool.parts)
    used = np.asarray(sensitive_features, dtype=object) if aware else None
    S = _columns(model, X, used)
    groups = _groups(model, X, sensitive_features, len(S))
    every = read_groups(read_crossed(sensitive_features, Groups.read(model.groups), len(S)).sensitive, len(S), EVERY)
    people = People.of(ids, groups, every.codes >= 0, contamination=model.contamination, smallest=smallest)
    outlier = None if labels is None else read_labels(labels, len(S))
    shown_labels: Labels = "absent" if outlier is None else "shown"
    if outlier is not None and min(int(outlier.sum()), int((~outlier).sum())) < max(smallest, 1):
        outlier, shown_labels = None, "too few"
    # 0, even steps on a log scale, and the model's own alpha
    alphas = np.unique(np.concatenate([[0.0], model.path_.grid(_GRID), [result.choice.alpha]]))
    before = result.scores.base(S)
    fitted = Fitted(
        model, X, sensitive_features, given, table, used, (before, result.mixture.apply(S, before)), people, reasons
    )
    base, steps, listed = _measure(fitted, S, alphas, outlier)
    return ReportData(
        title=shortened(title or origin.get("source") or "Fairness report"),
        origin=Origin(
            date=(date or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            versions=tuple(versions("Python", *_PACKAGES).items()),
            settings=tuple((name, _setting(value)) for name, value in model.get_params(deep=False).items()),
            **origin,
        ),
        rows=len(S),
        n_groups=people.n_groups,
        groups=tuple(map(Group, [shortened(people.names[g]) for g in people.listed], people.ranges(*people.guarded))),
        unlisted_groups=len(people.names) - len(people.listed),
        left_out_groups=tuple(map(shortened, groups.left_out)),
        contamination=float(f"{flagged_share(model.contamination, len(S)):.3g}"),
        fairness=tuple(model.path_.fairness),
        outcome=model.outcome_,
        flag_ratio=(result.base_flag_ratio(model.contamination), float(model.flag_rate_ratio_)),
        flag_interval=model.flag_rate_ratio_interval_,
        gap_detected=bool(model.gap_detected_),
        gap_p_value=float(model.path_.gap_p_value),
        refitted=model.path_.cross.refitted,
        weights_of_sum=model.path_.method == "published" or model.path_.cross.whole.base is not None,
        labels=shown_labels,
        detectors=tuple(shortened(name) for name in model.detector_names_),
        edges=tuple(EDGES.tolist()),
        base=base,
        steps=steps,
        chosen=int(np.flatnonzero(alphas == result.choice.alpha)[0]),
        people=listed,
        id_name="row" if ids is None else shortened(getattr(ids, "name", None) or "id"),
        smallest_cell=smallest,
        label_gap=model.label_gap_ if model.label_weight_ > 0 else None,
        resembled=tuple((shortened(name), known) for name, known in model.group_known_.items()),
        solved=model.path_.rule is not None,
        parts={each.name: each.collect(fitted) for row in SECTIONS for each in row if each.collect is not None},
    )


def _columns(model: FairOutlierEnsemble, X: Any, used: Any) -> FloatArray:
    """Scores of the rows by detectors, and how much they resemble groups by classifiers that have not seen them."""
    S, result = model._scored(lambda _, S: S, X, used), model._result
    k = result.scores.n_detectors
    fitted = S.shape == result.S.shape and np.allclose(S[:, :k], result.S[:, :k])
    return np.column_stack([S[:, :k], result.S[:, k:]]) if fitted and S.shape[1] > k else S


def _measure(
    fitted: Fitted, S: FloatArray, alphas: FloatArray, outlier: BoolArray | None
) -> tuple[Score, tuple[Step, ...], tuple[Person, ...]]:
    """The base ensemble, every step, and the people who move."""
    path, people, base = fitted.model.path_, fitted.people, fitted.scores[0]
    k, resemblance = fitted.model._result.scores.n_detectors, fitted.model._result.scores.resemblance
    base_score, flagged = people.measured(
        base, outlier, (path.target_bias("unseen"), *path.target_interval(), path.target_bias("training"))
    )
    biases = zip(path.bias(alphas, "unseen"), *path.interval(alphas), path.bias(alphas, "training"), strict=True)
    scores, crossings, taken = [], [], []
    for alpha, bias in zip(alphas, biases, strict=True):
        mixture = path.mixture(alpha)
        fair = mixture.apply(S, base)
        off = -mixture.parts(S, base)[:, k:-1].sum(axis=1) if S.shape[1] > k else None
        taken.append(() if off is None else people.listed_means(off - off.mean(), base.std() or 1.0))
        score, now_flagged = people.measured(fair, outlier, bias)
        scores.append(score)
        rows = np.flatnonzero(now_flagged != flagged)
        crossings.append((rows, ranks_of(fair, rows)))
    listed, moves = list_moves(people, crossings, base, flagged)
    f1, f2, weights = path.f1(alphas), path.f2(alphas), path.weights(alphas)
    row_weight, n_flagged = float(path.cross.whole.weighted[0, 0, 0]), max(int(flagged.sum()), 1)
    steps = tuple(
        Step(
            alpha=float(alphas[m]),
            f1=float(f1[m]),
            f2=float(f2[m]),
            distance=float(np.sqrt(max(f1[m], 0.0) / row_weight)),
            weights=tuple(weights[m, :k].tolist()),
            score=scores[m],
            moves=moves[m],
            kept=(max(1.0 - moves[m].leave[1] / n_flagged, 0.0), 1.0 - moves[m].leave[0] / n_flagged),
            prices=() if resemblance is None else tuple(resemblance.levelled(-weights[m, k:]).tolist()),
            taken=taken[m],
        )
        for m in range(len(alphas))
    )
    return base_score, steps, listed


def _groups(model: FairOutlierEnsemble, X: Any, sensitive_features: Any, n: int) -> Codes:
    """The groups of the rows, which must be those that the model was fitted on."""
    groups, result = read_crossed(sensitive_features, Groups.read(model.groups), n, rows=X).groups, model._result
    counts = result.counts if result.path.cross.whole.compared is None else result.groups.counts
    fitted = dict(zip(result.groups.labels, counts.tolist(), strict=True))
    given = dict(zip(groups.labels, groups.counts.tolist(), strict=True))
    if n != model.n_rows_ or given != fitted:
        raise ValueError(
            f"X has {n} rows in {len(given)} groups, but the model was fitted on {model.n_rows_} rows in "
            f"{len(fitted)} groups, or the groups differ in size; pass the rows and groups that were given to fit"
        )
    return groups


def _setting(value: Any) -> str:
    """A setting as text that is the same on every run: functions by name, no addresses in memory."""
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(value) if isinstance(value, str) else repr(value))[:500]


_DIGITS = 6  # that count, of numbers for the charts
_SCRIPTS = ("charts.js", "people.js", "report.js")
_IN_SCRIPT = ("groups", "detectors", "edges", "base", "steps", "chosen", "people", "labels")  # of the data


def render(data: ReportData) -> str:
    """The page as a string; the same data give the same bytes."""
    library = _plotting_library()
    script = '(() => {\n"use strict";\n' + "\n".join(static("evenout.report", name) for name in _SCRIPTS) + "})();"
    steps = [words.step_words(data, place) for place in range(len(data.steps))]
    page = template(
        "evenout.report", "report.html.j2", percent=percent, people=words.people, number=number,
        at=lambda tree, path: reduce(  # tree["rates"][0] for "rates.0"
            lambda node, key: node[int(key)] if isinstance(node, list) else node[key], path.split("."), tree
        ),
    )  # fmt: skip
    return page.render(
        data=data,
        sections=[
            [
                (each.name, page.environment.from_string(each.template) if each.template else f"{each.name}.html.j2")
                for each in row
                if each.collect is None or data.parts.get(each.name)
            ]
            for row in SECTIONS
        ],
        headline=words.headline(data),
        gap=gap_words(data.fairness),
        base=words.score_words(data, data.base),
        steps=steps,
        now=steps[data.chosen],
        payload=_payload(data, steps),
        style=safe(style()),
        library=safe(library),
        script=safe(script),
        policy=policy(library, script),
    )


def _payload(data: ReportData, steps: list[dict[str, Any]]) -> Any:
    """The data of the page's script as JSON: numbers for the charts, and the words of every step.

    It can stand inside a script element: no character in it means anything to HTML.
    """
    from markupsafe import Markup

    everything = asdict(data)
    payload = {name: _rounded(everything[name]) for name in _IN_SCRIPT}
    for step, words_of_step in zip(payload["steps"], steps, strict=True):
        step["words"] = words_of_step
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))


def _rounded(value: Any) -> Any:
    """Numbers with a few digits that count; what is not finite becomes null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


@lru_cache(maxsize=1)
def _plotting_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which puts ``vegaEmbed`` into the page."""
    return from_extra("vl_convert", "pages", "the report").javascript_bundle("window.vegaEmbed = vegaEmbed;")


@without_old_names
def write_report(
    model: FairOutlierEnsemble, path: str | os.PathLike[str], *, X: Any, sensitive_features: Any, labels: Any = None,
    ids: Any = None, given: Any = None, title: str | None = None, source: str | None = None,
    input_sha256: str | None = None, model_sha256: str | None = None, show_small_cells: bool = False,
    reasons: int = 0, table: TableEncoder | None = None, date: datetime | None = None,
) -> Path:  # fmt: skip
    """Write the report of a fitted model: one HTML page that opens anywhere, without a network.

    Parameters
    ----------
    model : FairOutlierEnsemble
        Fitted.
    path : str or path
        The file to write or to replace.
    X : array or frame of shape (n, d)
        The rows that the model was fitted on.
    sensitive_features : array, series or frame of shape (n,) or (n, c)
        Their protected groups, as given to `fit`.
    labels : array of shape (n,), optional
        1 for known outliers, 0 for others; to evaluate alone.
    ids : array of shape (n,), optional
        What to call the rows in the list of people who enter or leave the flagged list; by default row numbers.
    given : array, series or frame of shape (n,) or (n, c), optional
        The columns that may justify a difference, as given to `fit`.
    title, source : str, optional
        The page's title, and where the data came from.
    input_sha256, model_sha256 : str, optional
        Hashes of the data file and of the stored model.
    show_small_cells : bool, default=False
        Show counts of fewer than 10 people too, and the group beside each id. These can identify people.
    reasons : int, default=0
        Name the most unusual people who enter, leave and stay on the flagged list, each with so many reasons in words.
        These hold values of their rows.
    table : TableEncoder, optional
        That X was encoded by: features are then called as in its table.
    date : datetime, optional
        The date on the page; by default now.

    Returns
    -------
    Path
        Of the file.

    Examples
    --------
    >>> from evenout.report import write_report
    >>> write_report(model, "report.html", X=X, sensitive_features=groups)  # doctest: +SKIP
    """
    from_extra("vl_convert", "pages", "the report")  # refused before the work, not after it
    with atomic_file(Path(path)) as draft:
        data = collect(
            model, X=X, sensitive_features=sensitive_features, labels=labels, ids=ids, given=given,
            show_small_cells=show_small_cells, title=title, source=source, input_sha256=input_sha256,
            model_sha256=model_sha256, date=date, reasons=reasons, table=table,
        )  # fmt: skip
        draft.write_text(render(data), encoding="utf-8", newline="\n")
    return Path(path)
