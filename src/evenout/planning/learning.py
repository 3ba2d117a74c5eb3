"""Learning from lists: outcomes of many rounds as labels, weighted so that they represent all rows.

Over rounds t of the same rows, with shares ``a_t`` of all planned chance draws, a row that was drawn in round s with
probability pi counts ``a_s / pi + sum of a_t, t > s``: the average over rounds of what each one, given the past, says
about all rows. How far such weights are used is decided where labels are learnt (`evenout.core.stacking`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from evenout.core.stacking import LEAST_OF_A_KIND, Population, inverse_propensity, learn_stack
from evenout.core.types import FloatArray
from evenout.exceptions import InputError
from evenout.planning.plan import InvestigationPlan

_FOLDS = 5


@dataclass(frozen=True)
class Lesson:
    """Outcomes for the n rows of one table, over one round or several.

    ``sensitive`` are their groups as they were given, or None. ``labels`` are 1, 0, or NaN for rows that nobody has
    investigated. ``weight`` is the number of rows that a labelled one stands for, times ``looks``, the number of rows
    drawn by chance over all rounds.
    """

    X: Any
    sensitive: Any
    labels: FloatArray
    weight: FloatArray
    looks: int

    @classmethod
    def of(cls, plan: InvestigationPlan, outcomes: Any, sensitive: Any) -> "Lesson":
        """The outcomes of one round, and those known before it."""
        if plan.source is None:
            raise InputError("this plan has no rows to learn from; make it by the plan method of the model")
        X, given = plan.source
        labels = plan.labels(outcomes).to_numpy()
        known = ~np.isnan(labels)
        looks = int((~plan.by_score[plan.chosen]).sum())
        weight = np.where(known, looks / np.where(known, plan.propensity, 1.0), 0.0)
        return cls(X, given if sensitive is None else sensitive, labels, weight, looks)

    def then(self, later: "Lesson") -> "Lesson":
        """Join this round with a later one of the same rows."""
        labels = np.where(np.isnan(later.labels), self.labels, later.labels)
        new = np.isnan(self.labels) & ~np.isnan(labels)
        weight = np.where(new, later.weight, np.where(np.isnan(labels), 0.0, self.weight + later.looks))
        sensitive = self.sensitive if later.sensitive is None else later.sensitive
        return Lesson(self.X, sensitive, labels, weight, self.looks + later.looks)

    def same_rows(self, X: Any) -> bool:
        """Whether X is this table."""
        alike = type(X) is type(self.X) and np.shape(X) == np.shape(self.X)
        return X is self.X or (alike and bool(np.all(_values(X) == _values(self.X))))


def _values(X: Any) -> Any:
    return X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)


def add_rounds(
    lessons: Sequence[Lesson], plans: InvestigationPlan | Iterable[InvestigationPlan], outcomes: Any, sensitive: Any
) -> list[Lesson]:
    """Add the outcomes of one plan or several; rounds of the same rows are joined."""
    if isinstance(plans, InvestigationPlan):
        plans, outcomes = [plans], [outcomes]
    plans, outcomes, merged = [*plans], [*outcomes], [*lessons]
    if not plans or len(plans) != len(outcomes):
        raise InputError("give as many {@outcomes} as plans, and at least one")
    for plan, given in zip(plans, outcomes, strict=True):
        latest = Lesson.of(plan, given, sensitive)
        same = next((i for i, lesson in enumerate(merged) if lesson.same_rows(latest.X)), None)
        if same is None:
            merged.append(latest)
        else:
            merged[same] = merged[same].then(latest)
    return merged


def training_table(model: Any, lessons: Sequence[Lesson]) -> dict[str, Any]:
    """Arguments of a fit on the rows of all lessons."""
    labels, propensity = _labels(lessons)
    known = {"labels": labels, "label_propensity": propensity}
    X, groups = [lesson.X for lesson in lessons], [_groups(model, lesson) for lesson in lessons]
    if len(lessons) == 1:
        return {"X": X[0], "sensitive_features": groups[0], **known}
    together = pd.concat(X, ignore_index=True) if all(hasattr(each, "iloc") for each in X) else np.concatenate(X)
    columns = pd.concat([pd.DataFrame(_values(each)) for each in groups], ignore_index=True)
    return {"X": together, "sensitive_features": columns, **known}


def _labels(lessons: Sequence[Lesson]) -> tuple[FloatArray, FloatArray | None]:
    """Labels of all rows, and the propensities that weight them; None if a list was drawn without chance."""
    labels = np.concatenate([lesson.labels for lesson in lessons])
    weight = np.concatenate([lesson.weight / max(lesson.looks, 1) for lesson in lessons])
    known = ~np.isnan(labels)
    if not (weight > 0).any() or not all(lesson.looks for lesson in lessons):
        return labels, None
    weight = np.where(weight > 0, weight, weight[weight > 0].min())  # of rounds without chance
    return labels, np.where(known, weight[known].min() / np.where(known, weight, 1.0), 1.0)


def _groups(model: Any, lesson: Lesson) -> Any:
    """Groups of a table: those given, or those of the fit where it is the training table."""
    if lesson.sensitive is not None:
        return lesson.sensitive
    groups, trained = model._result.groups, getattr(model, "outlier_scores_", ())
    hard = len(trained) == len(lesson.labels) == len(groups.codes) and bool((groups.codes >= 0).all())
    if hard and np.array_equal(model.outlier_scores(lesson.X), trained):
        return np.array(groups.labels, dtype=object)[groups.codes]
    raise InputError("learning fits the model again; give {@sensitive_features} to plan or to learn_from")


@dataclass(frozen=True)
class Trial:
    """AUC of the score on the latest outcomes, before and after learning from them.

    The score before has not used them. The one after is cross-fitted: each fifth of them is scored by what the earlier
    rounds and the other fifths teach.
    """

    before: float
    after: float
    error: float

    @property
    def worse(self) -> bool:
        """Whether the loss is more than one standard error."""
        return self.after < self.before - self.error

    @classmethod
    def of(cls, model: Any, lessons: Sequence[Lesson], earlier: Sequence[Lesson]) -> "Trial | None":
        """Compare both scores; None if too few outcomes came back."""
        labels, propensity = _labels(lessons)
        old = np.concatenate([*(each.labels for each in earlier), np.full(len(labels), np.nan)])
        known = np.flatnonzero(~np.isnan(labels))
        fresh, y = np.flatnonzero(np.isnan(old[known])), labels[known]
        kinds = int(y[fresh].sum()), len(fresh) - int(y[fresh].sum())
        if min(kinds) < max(LEAST_OF_A_KIND, _FOLDS):
            return None
        S = np.concatenate([model.detector_scores(each.X, sensitive_features=each.sensitive) for each in lessons])
        t = replace(model._result.scores, stack=None).base(S)
        chance = None if propensity is None else propensity[known]
        weight = np.ones(len(fresh)) if chance is None else inverse_propensity(chance[fresh])[0]
        population, S, t = Population.of(S, t), S[known], t[known]
        fold = np.empty(len(fresh), dtype=np.intp)
        fold[np.argsort(y[fresh], kind="stable")] = np.arange(len(fresh)) % _FOLDS
        learnt = np.empty(len(fresh))
        for part in range(_FOLDS):
            held = fresh[fold == part]
            rest = np.setdiff1d(np.arange(len(y)), held)
            stack = learn_stack(
                S[rest], t[rest], y[rest], propensity=None if chance is None else chance[rest], population=population
            )
            learnt[fold == part] = stack.apply(S[held], t[held])
        before = float(roc_auc_score(y[fresh], model._result.scores.base(S[fresh]), sample_weight=weight))
        after = float(roc_auc_score(y[fresh], learnt, sample_weight=weight))
        return cls(before, after, float(np.sqrt(max(before * (1.0 - before), 0.05) / min(kinds))))
