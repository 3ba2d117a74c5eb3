"""From partitions to a source of rows: count, measure and group all rows, and draw the reference."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenout.core.exceptions import InputError
from evenout.core.notions import Notion
from evenout.detectors.pool import has_named
from evenout.detectors.units import feature_labels
from evenout.fitting.beyond import Beyond, Plan
from evenout.fitting.scores import KnownLabels
from evenout.fitting.sources import Memory, Source, TrainingRows, check_soft, compared_rows
from evenout.inputs.coder import Coder
from evenout.inputs.grouping import Grouping, is_plain, settle
from evenout.inputs.groups import Groups
from evenout.inputs.rows import column_names, require_labels
from evenout.partitions.reference import Reference, Settled, draw_reference, settle_groups
from evenout.partitions.survey import Survey, count_again, learn_units, survey_rows


def open_source(plan: Plan, parameters: Mapping[str, Any], seed: int, fairness: Collection[Notion]) -> Source:
    """Check and count all rows, settle the groups, and draw the reference: all rows, or as many as memory takes."""
    _check(parameters)
    size, engine = parameters["reference_size"], plan.engine
    counted = {"unknown_groups": parameters["unknown_groups"], "reference_size": size, "seed": seed}
    measured = parameters["standardize"] and has_named(parameters["detectors"])
    survey = survey_rows(engine, **counted, continuous=parameters["continuous"], measure=measured)
    if survey.n_rows < 2:
        raise ValueError(f"X has {survey.n_rows} row(s) in all partitions; at least 2 are needed")
    if parameters["learn"]:
        require_labels(survey.known)
    among = compared_rows(fairness, labelled=survey.known is not None)
    learnt = _coder(survey, parameters, labelled=among != ["all"])
    coarse = [cut.name for cut in learnt.cuts if cut.coarse]
    if coarse:
        raise InputError(
            "{@given} has many numbers in column {name!r}, in which rows are made alike where all are in memory; give "
            "parts of it as text, or fit in memory",
            name=coarse[0],
        )
    coder = None if is_plain(learnt, among, parameters["intersections"]) else learnt
    units, grouping, probable = None, None, survey.probable
    if survey.ranges is not None and survey.n_rows > size:
        units = learn_units(engine, survey.ranges, exact=survey.n_rows <= plan.exact_rows)
    if coder is not None or units is not None:
        survey = count_again(engine, **counted, coder=coder, units=units)
    if coder is not None:
        grouping = settle(coder, survey.combined, among, parameters)
    quiet = grouping is not None
    groups = _settled(replace(survey, probable=probable), parameters, len(learnt.attributes), quiet=quiet)
    drawn = draw_reference(engine, survey, groups, reference_size=size, seed=seed, coder=coder, units=units)
    rows = _training_rows(drawn, groups, grouping, column_names(engine.header))
    rows = replace(rows, doubt="probable" if probable and not plan.sufficient else "")
    if among != ["all"]:
        known = KnownLabels.of_columns(drawn.known)
        if known.propensity is not None and not drawn.complete:
            raise InputError(
                "{@label_propensity} with {fairness=} needs all rows in memory; raise {@reference_size}",
                fairness=next(notion.name for notion in fairness),
            )
        rows = rows.looked_at(known.labels, known.propensity)
    check_soft(fairness, None if grouping is None else grouping.compared)
    if drawn.complete:
        return Memory.of(_labelled(rows, drawn, parameters).measured(parameters), parameters, seed)
    if units is not None:
        units.warn_dropped(feature_labels(rows.feature_names, rows.X.shape[1]))
    return Beyond(replace(rows, units=units), groups, plan, parameters, seed, grouping)


def _coder(survey: Survey, parameters: Mapping[str, Any], *, labelled: bool) -> Coder:
    if survey.probable:
        return Coder.of_probable(survey.probable, survey.given, labelled=labelled)
    settings = {name: parameters[name] for name in ("continuous", "bands")}
    return Coder.learn(survey.sensitive, survey.given, **settings, labelled=labelled)


def _settled(survey: Survey, parameters: Mapping[str, Any], n_attributes: int, *, quiet: bool) -> Settled:
    rules = {name: parameters[name] for name in ("min_group_size", "small_groups")}
    if n_attributes > 1 and not parameters["intersections"]:  # crossings are counted, not compared
        rules["small_groups"] = "leave_out"
    return settle_groups(survey, **rules, quiet=quiet)


def _training_rows(
    drawn: Reference, groups: Settled, grouping: Grouping | None, names: Sequence[str] | None
) -> TrainingRows:
    hard = Groups(drawn.codes, groups.labels, groups.left_out)
    rows = TrainingRows(drawn.X, hard, drawn.labels, feature_names=names)
    if grouping is None:
        return rows
    return rows.grouped(grouping, grouping.members(drawn.columns), coder=grouping.coder)


def _labelled(rows: TrainingRows, drawn: Reference, parameters: Mapping[str, Any]) -> TrainingRows:
    """All rows with their labels, if the base score is to learn from them."""
    if not parameters["learn"]:
        return rows
    return replace(rows, known=KnownLabels.of_columns(drawn.known))


def _check(parameters: Mapping[str, Any]) -> None:
    if parameters["scaling"] != "minmax":  # its extremes merge without any rounding
        raise InputError(
            "{scaling=} needs all rows in memory; over partitions use {scaling='minmax'}",
            scaling=parameters["scaling"],
        )
