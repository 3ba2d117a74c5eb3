"""New rows folded into a fit: the sums add, the weights are solved again, and the detectors stay as they are.

No detector has seen new rows, so all detectors score them, as they do rows beyond a reference. Scaling, base ensemble,
ranks and folds are *maps* that the fit has stored; through them new rows become sums, which are added to those of the
fit. The result is that of solving on all rows by the same maps.

Sums of old and new rows add, and so do their gaps: after a drift the sum describes neither. So an update compares the
latest rows with those before: mean base score, mean fair score and flag rate of each group. Two windows are tried: the
new rows, and all rows that updates have added, which shows drifts that are too small for one batch. The j-th update
since the fit spends ``1 / (j (j + 1))`` of a false-alarm rate of 5 %, which is then the rate of all updates together.
"""

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import t as student

from evenout.core.cells import Cells, CrossFit
from evenout.core.flags import FlagRows, flag_threshold
from evenout.core.intervals import holm
from evenout.core.membership import Membership
from evenout.core.notions import pairs_notion
from evenout.core.ruler import Means, Sample
from evenout.core.types import BoolArray, FloatArray, IntArray
from evenout.exceptions import AgedDetectorsWarning, DriftWarning, InputError, warn
from evenout.fitting.choose import moving_columns, open_tradeoffs, settle
from evenout.fitting.passes import UpdateMaps
from evenout.fitting.result import NO_ROWS, Drift, FitResult, Recent
from evenout.fitting.rows import hashed_folds, stands_for
from evenout.fitting.settings import Settings
from evenout.groups.read import Codes, match_groups

AGED = 0.1  # a detector has aged when its scores have moved for certain, and by this share of the rows or more
FALSE_ALARMS = 0.05


def update_fit(fit: FitResult, settings: Settings, X: FloatArray, sensitive: Any) -> FitResult:
    """The fit with more rows, of shape (m, d).

    Where the latest rows differ from those before by more than chance, the fit is that of the latest alone.
    """
    maps, n_threads, groups = _require_maps(fit), settings.n_threads, fit.groups
    n_compared, every = len(groups.labels), (*groups.labels, *groups.left_out)
    matched = match_groups(sensitive, len(X), every, unknown=settings.groups.unknown)
    codes = np.where(matched.codes < n_compared, matched.codes, -1)  # -1 for small and unknown groups
    small = zip(groups.left_out.items(), matched.counts[n_compared:].tolist(), strict=True)
    left_out = {name: before + n for (name, before), n in small}
    pool, resemblance = fit.scores.pool, fit.scores.resemblance
    raw = pool.score(X, n_threads=n_threads, sensitive_features=sensitive, device=settings.device)
    raw = raw if resemblance is None else np.column_stack([raw, resemblance.of(X)])
    folds = hashed_folds(pool.inside(X), maps.seed, max(len(maps.models) - 1, 1))
    cells = maps.cells(raw, codes, folds, n_compared, n_threads)
    S, t = fit.scores.of_raw(raw)
    held_S, held_t = S.copy(), t.copy()
    for fold, model in enumerate(maps.models[1:]):
        rows = folds == fold
        held_S[rows], held_t[rows] = model.of_raw(raw[rows])
    k, views = len(pool.names), fit.seen.views
    if views is not None:
        moving = moving_columns(settings, fit.path.columns, S.shape[1])
        views = views.of_new((Z[:, moving], base) for Z, base in (model.of_raw(raw) for model in maps.models))
    _warn_aged(maps.moved(S[:, :k], held_S[:, :k]), pool.names)
    judged = (held_S, held_t) if settings.judged_on == "unseen" else (S, t)
    seen = FlagRows(*judged, Sample(Membership.of_codes(codes, n_compared)), folds, views)
    old, new = _thinned(fit, codes, settings.reference_size)
    more = _joined(fit, S, t, seen, codes, left_out, old, new)
    path = open_tradeoffs(settings, _cross_fit(cells, fit.path.cross, added=True), fit.path.columns.resembling)
    since = batch = Recent(cells, int(new.sum()), 1)
    before = fit.recent
    if before is not None:
        kept = int(old[len(old) - before.kept :].sum()) + batch.kept
        since = Recent(before.cells + cells, kept, before.updates + (fit.drift is None or fit.drift.followed))
    return _followed(fit, replace(more, path=path, recent=since), since, batch, settings)


def _followed(fit: FitResult, more: FitResult, since: Recent, batch: Recent, settings: Settings) -> FitResult:
    """The fit of all rows, ``more``, or of the latest alone, where these differ from those before.

    Two windows of the latest rows are tried: those ``since`` the fit or the last drift, and this ``batch``.
    """
    if fit.path.cross.n_folds == 0:
        return more.at(settings)
    share = fit.seen.share(settings.contamination)
    windows = [since] if since.updates == 1 or since.kept == batch.kept else [since, batch]
    level = FALSE_ALARMS / (since.updates * (since.updates + 1) * len(windows))
    tested = ((_group_p_values(fit, more, window.kept, share), window) for window in windows)
    p, window = min(tested, key=lambda pair: float(pair[0].min()))
    if p.min() > level:
        earlier = fit.drift if fit.drift is not None and fit.drift.followed else None
        return replace(more, drift=earlier and replace(earlier, now=more.n_rows)).at(settings)
    _, choice, ratio, _ = settle(settings, more.path, more.seen)
    stated = (choice.reached, choice.interval) if settings.flag_rate_ratio is None else (ratio.value, ratio.interval)
    now = int(window.cells.counts[0])
    moved = (p[0] if p[0].min() <= level else p.min(axis=0)) <= level  # by themselves or, if none is, against others
    groups = tuple(name for name, differs in zip(more.groups.labels, moved, strict=True) if differs)
    drift, latest = Drift(groups, more.n_rows - now, now, True, *stated), _latest(more, window, settings)
    if _too_few(latest, fit, settings):
        return replace(more, recent=window, drift=replace(drift, followed=False)).at(settings)
    warn(
        DriftWarning(
            "rows of {groups} differ from those before by more than chance explains (p = {p:.2g}): the rule is solved "
            "for the last {now:,} rows, and what is stated is about rows like these. The detectors are those of the "
            "fit: a refit on rows of now is due.",
            groups=drift.named, p=float(p.min()), now=now,
        )
    )  # fmt: skip
    return replace(latest, recent=None, drift=drift).at(settings)


def _group_p_values(rule: FitResult, rows: FitResult, last: int, share: float) -> FloatArray:
    """p-values of "the ``last`` rows in memory are like those before", by Holm's method, shape (3, G).

    Of each group's mean base score; and, against all groups, of its mean fair score by ``rule`` and of its rate among
    the top ``share`` of the rows. Detectors have seen the rows of the fit, and not the new ones; those fitted without a
    fold have seen fewer rows. That moves scores of all groups a little, one way or the other: a difference counts where
    both ways of scoring the rows of the fit show it, on the same side.
    """
    latest = np.arange(len(rows.target)) >= len(rows.target) - last
    path, alpha = rule.path, np.array([rule.choice.alpha])
    known = FlagRows(rows.S, rows.target, rows.seen.sample, np.zeros_like(rows.seen.folds))
    views = (known, path.fold_weights(alpha, "training")), (rows.seen, path.fold_weights(alpha, "unseen"))
    z = np.stack([_differences(*view, latest, share) for view in views])
    least = np.where((z > 0).all(axis=0) | (z < 0).all(axis=0), np.abs(z).min(axis=0), 0.0)
    return np.asarray(holm(2.0 * ndtr(-least).ravel())).reshape(least.shape)


def _differences(rows: FlagRows, V: FloatArray, latest: BoolArray, share: float) -> FloatArray:
    """The latest rows of each group against those before, as standard normal values, shape (3, G)."""
    y, flagged = np.zeros(len(rows.t)), np.zeros(len(rows.t), dtype=bool)
    for fold in range(len(V)):
        inside, scores = rows.scores(V, fold)
        y[inside] = scores[:, 0]
        for part in (inside[latest[inside]], inside[~latest[inside]]):
            weight = None if rows.sample.weight is None else rows.sample.weight[part]
            flagged[part] = len(part) > 0 and y[part] > flag_threshold(y[part][:, None], share, weight)
    parts = [(rows.sample.of(of), of) for of in (~latest, latest)]
    differences = []
    for column, against_all in ((rows.t, False), (y, True), (flagged, True)):
        old, new = (sample.measure(column[of]) for sample, of in parts)
        differences.append(_compared(old, new, parts[0][0].total if against_all else None))
    return np.stack(differences)


def _compared(old: Means, new: Means, against: FloatArray | None) -> FloatArray:
    """New means less old ones, of known groups and less those of all groups by weight ``against``, over their error.

    Student's distribution with the degrees of freedom of Welch makes them standard normal.
    """
    known = old.known & new.known
    share = np.zeros(len(known)) if against is None else np.where(known, against, 0.0)
    A = np.eye(len(known)) - share / max(share.sum(), 1e-300)
    noise = [np.where(known, part.size - 1.0, 1.0) for part in (old, new)]
    spread = np.stack([np.diag(A @ np.diag(np.where(known, np.diag(part.cov), 0.0)) @ A.T) for part in (old, new)])
    total = spread.sum(axis=0)
    some = known & (total > 0)
    df = total**2 / np.maximum((spread**2 / noise).sum(axis=0), np.finfo(float).tiny)
    apart = A @ (np.where(known, new.mean, 0.0) - np.where(known, old.mean, 0.0))
    t = apart / np.sqrt(np.where(some, total, 1.0))
    return np.where(some, -np.sign(t) * ndtri(student.cdf(-np.abs(t), np.where(some, df, 1.0))), 0.0)


def _latest(more: FitResult, window: Recent, settings: Settings) -> FitResult:
    """The fit of the latest rows alone, not yet solved."""
    last = np.arange(len(more.target)) >= len(more.target) - window.kept
    rows, groups = more.seen, Codes(more.groups.codes[last], more.groups.labels, more.groups.left_out)
    counts, n_rows = window.cells.group_counts[0].astype(np.intp), int(window.cells.counts[0])
    sample = replace(rows.sample.of(last), weight=stands_for(groups, counts, n_rows))
    return replace(
        more,
        S=more.S[last],
        target=more.target[last],
        groups=groups,
        counts=counts,
        n_rows=n_rows,
        seen=replace(rows.among(last, sample, n_rows), views=None),  # no detector has seen them
        path=open_tradeoffs(settings, _cross_fit(window.cells, more.path.cross), more.path.columns.resembling),
    )


def _too_few(latest: FitResult, fit: FitResult, settings: Settings) -> bool:
    """Whether the latest rows are too few to solve for, or to say that the gap of the fit is gone."""
    many = isinstance(settings.contamination, Integral) and settings.contamination > latest.n_rows // 2
    small = latest.counts.min() < settings.groups.min_size
    if many or small or (latest.path.cross.held.group_counts < 2).any():
        return True
    gone = fit.path.gap_detected and not latest.path.gap_detected
    return gone and latest.path.target_interval()[1] >= fit.path.target_bias()


def _require_maps(fit: FitResult) -> UpdateMaps:
    """The maps of a fit whose sums add; others are refused."""
    if name := pairs_notion(notion for notion, _ in fit.path.notions):
        raise InputError(
            "{fairness=} compares pairs of rows, whose sums do not add; fit again on all rows", fairness=name
        )
    if fit.path.cross.whole.sums:
        raise InputError("{@fairness} has collected sums of its own, which do not add; fit again on all rows")
    if fit.beyond_crossed:
        raise InputError(
            f"an update adds rows to crossed groups of independent rows that count alike, and the fit has "
            f"{fit.beyond_crossed}; fit again on all rows"
        )
    if fit.maps is None:
        raise InputError(NO_ROWS, what="an update")
    return fit.maps


def _cross_fit(cells: Cells, fit: CrossFit, *, added: bool = False) -> CrossFit:
    """The sums of new rows, alone or ``added`` to those of the fit; the base score's weights are those of the fit."""

    def joined(old: Cells, sets: slice) -> Cells:
        new = cells.at(sets)
        return replace(old + new if added else new, base=old.base, compared=old.compared)

    whole, training = joined(fit.whole, slice(0, 1)), joined(fit.training, slice(2, None, 2))
    return CrossFit(whole, training, joined(fit.held, slice(3, None, 2)), fit.refitted)


def _joined(
    fit: FitResult,
    S: FloatArray,
    t: FloatArray,
    seen: FlagRows,
    codes: IntArray,
    left_out: dict[str, int],
    old: BoolArray,
    new: BoolArray,
) -> FitResult:
    """Old and new rows together, as far as they stay in memory; the path is still that of the old ones."""
    every = Codes(np.append(fit.groups.codes[old], codes[new]), fit.groups.labels, left_out)
    counts, n_rows = fit.counts + np.bincount(codes[codes >= 0], minlength=len(fit.counts)), fit.n_rows + len(t)
    sample = Sample(Membership.of_codes(every.codes, len(counts)), stands_for(every, counts, n_rows))
    before, more = fit.seen.among(old, sample, n_rows), seen.among(new, sample, n_rows)
    return replace(
        fit,
        S=np.concatenate([fit.S[old], S[new]]),
        target=np.append(fit.target[old], t[new]),
        groups=every,
        counts=counts,
        n_rows=n_rows,
        seen=replace(
            before,
            S=np.concatenate([before.S, more.S]),
            t=np.append(before.t, more.t),
            folds=np.append(before.folds, more.folds),
            views=before.views + more.views if before.views is not None and more.views is not None else None,
        ),
    )


def _thinned(fit: FitResult, codes: IntArray, room: int) -> tuple[BoolArray, BoolArray]:
    """Which old and which new rows stay in memory: all, or the same share of each group's old and new rows."""
    total = fit.n_rows + len(codes)
    if total <= max(room, 1) and fit.n_rows == len(fit.target):
        return np.ones(len(fit.target), dtype=bool), np.ones(len(codes), dtype=bool)
    drawn = np.append(fit.groups.counts, (fit.groups.codes < 0).sum())
    rows = np.append(fit.counts, fit.n_rows - fit.counts.sum())
    before = drawn / np.maximum(rows, 1)
    share = np.minimum(before, room / total)
    rng = np.random.default_rng([0 if fit.maps is None else fit.maps.seed, fit.n_rows])
    keep = np.divide(share, before, out=np.ones(len(share)), where=before > 0)
    return rng.random(len(fit.target)) < keep[fit.groups.codes], rng.random(len(codes)) < share[codes]


def _warn_aged(moved: FloatArray, names: tuple[str, ...]) -> None:
    aged = [(names[j], float(moved[j])) for j in np.argsort(-moved, kind="stable") if moved[j] >= AGED]
    if aged:
        warn(
            AgedDetectorsWarning(
                "new rows score elsewhere than at the fit: by {n} of {k} detectors {least:.0%} of them or more have "
                "moved ({named}{more}). The weights were solved again, but these detectors have aged: a refit is due.",
                n=len(aged), k=len(names), least=AGED, more=" and others" if len(aged) > 5 else "",
                named=", ".join(f"{name} ({far:.0%})" for name, far in aged[:5]),
            )
        )  # fmt: skip
