"""What says how much rows resemble each group, as plain data, and back: trees are arrays, other classifiers objects."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evenout.fitting.resemblance import Boosted, Calibration, FittedResemblance, Told
from evenout.storage.fields import Fields


def describe_resemblance(model: FittedResemblance | None, objects: list[Any]) -> dict[str, Any] | None:
    """As plain data; classifiers that are no plain arrays are put into ``objects``."""
    if model is None:
        return None
    parts = []
    for part in model.parts:
        if isinstance(part.classifier, Boosted):
            classifier: dict[str, Any] = {"trees": part.classifier}
        else:
            objects.append(part.classifier)
            classifier = {"object": len(objects) - 1}
        kept = {"slope": part.calibration.slope, "offset": part.calibration.offset, "shares": part.shares}
        parts.append({"groups": part.groups.astype(np.int64), **kept, **classifier})
    return {"n_groups": model.n_groups, "parts": parts}


def read_resemblance(data: Fields, n_features: int, objects: Sequence[Any]) -> FittedResemblance:
    """Out of a model file, for rows of ``n_features`` columns."""
    n_groups = data.whole("n_groups", 2, 2**31 - 1)
    parts = []
    for part in data.parts("parts"):
        groups = part.integers("groups", None, low=0, high=n_groups - 1)
        offset, shares = part.floats("offset", None), part.floats("shares", len(groups))
        part.require(len(groups) <= len(offset) <= len(groups) + 1, "offset", "has the wrong length")
        part.require((shares > 0).all(), "shares", "is out of range")
        if "trees" in part:
            classifier: Any = Boosted.read(part.fields("trees"), n_features, len(offset))
        else:
            place = part.whole("object", 0, max(len(objects) - 1, 0))
            part.require(place < len(objects), "object", "is missing")
            classifier = objects[place]
            part.require(hasattr(classifier, "predict_proba"), "object", "is no classifier")
        parts.append(Told(groups, classifier, Calibration(part.number("slope"), offset), shares))
    return FittedResemblance(tuple(parts), n_groups)
