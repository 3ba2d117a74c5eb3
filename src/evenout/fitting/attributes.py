"""What a fit does for each protected attribute by itself."""

from typing import NamedTuple

import numpy as np

from evenout.core.cells import unit_target
from evenout.core.exceptions import AttributeWarning, warn
from evenout.core.parity import DemographicParity
from evenout.core.path import Target, TradeoffPath

_CLEAR = 0.02  # changes below this share of the largest bias are no matter


class AttributeBias(NamedTuple):
    """Bias between the groups of one attribute, of the base score and of the fair one.

    ``error`` is the standard error of the change; NaN on training rows.
    """

    before: float
    after: float
    error: float = float("nan")


def attribute_bias(path: TradeoffPath, alpha: float, target: Target) -> dict[str, AttributeBias]:
    """The bias of each attribute that is compared by itself, by the first notion that compares groups.

    A crossing has the names of its attributes, joined. Nothing is said where there are crossed groups alone, whose
    bias is that of the path.
    """
    notions = [notion for notion, _ in path.notions if isinstance(notion, DemographicParity)]
    names = dict.fromkeys(block.of for block in path.cross.whole.comparison.blocks if block.of)
    if not notions or not names or (target == "unseen" and not path.cross.n_folds):
        return {}
    notion, found, alphas = notions[0], {}, np.array([alpha])
    V = path.fold_weights(alphas, target)
    for name in names:
        cross = path.cross.only(lambda block, name=name: block.of == name)  # type: ignore[misc]
        if target == "training":
            both = np.concatenate([unit_target(cross.whole)[0], V[0]])
            found[name] = AttributeBias(*notion.training_bias(cross.whole, both).tolist())
            continue
        before = notion.target_bias(cross)
        after = before if path.is_target(alpha) else notion.bias(cross, V)
        change = np.array([1.0, -1.0])
        error = np.sqrt(max(change @ notion.covariance(cross, V) @ change, 0.0))
        found[name] = AttributeBias(float(before[0]), float(after[0]), 0.0 if path.is_target(alpha) else float(error))
    return found


def warn_rising(found: dict[str, AttributeBias]) -> None:
    """Say so where the bias of one attribute rises while that of another falls, both clearly."""
    least = max((_CLEAR * bias.before for bias in found.values()), default=0.0)

    def clear(change: float, error: float) -> bool:
        return least > 0 and change > max(least, 2.0 * float(np.nan_to_num(error)))

    rising = [name for name, bias in found.items() if clear(bias.after - bias.before, bias.error)]
    falling = [name for name, bias in found.items() if clear(bias.before - bias.after, bias.error)]
    if rising and falling:
        named = " and ".join(f"{name!r} ({found[name].before:.2g} to {found[name].after:.2g})" for name in rising)
        template = (
            "the bias of {named} rises while that of {falling} falls; ask for less ({@bias_reduction}), or leave "
            "attributes out, to see what each of them costs the others"
        )
        warn(AttributeWarning(template, named=named, falling=" and ".join(map(repr, falling))))
