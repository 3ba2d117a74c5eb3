"""What learning from labels has made of the gap between groups."""

import math
from dataclasses import dataclass

from evenout.exceptions import BiasedLabelsWarning, warn


@dataclass(frozen=True)
class Learnt:
    """Scale-free bias of the base score before and after it has learnt from labels; NaN where it was not to learn.

    ``raised``: whether it has risen by more than chance explains.
    """

    before: float = float("nan")
    after: float = float("nan")
    raised: bool = False

    def without_labels(self, reduction: float) -> float:
        """A reduction of the learnt base score's bias, as one of the bias that was there without labels."""
        return 1.0 - (1.0 - reduction) * self.after / self.before if self.before > 0 else float("nan")

    def announced(self, reduction: float) -> None:
        """Warn where the gap was raised; ``reduction`` is the share of it that is gone from the fair score."""
        if not self.raised:
            return
        gone = self.without_labels(reduction)
        left = "{reduction:.0%} of that is gone from the fair score, and what is left is {compared}. "
        warn(
            BiasedLabelsWarning(
                "learning from labels has raised the bias of the base score from {before:.4f} to {after:.4f}. "
                + ("" if math.isnan(gone) else left)
                + "Labels carry the bias of those who gave them: look at how they came about, or leave out {@learn}.",
                before=self.before, after=self.after, reduction=reduction, compared=beside_unlearnt(gone),
            )
        )  # fmt: skip


def beside_unlearnt(gone: float) -> str:
    """A reduction of the bias without labels, in words.

    >>> [beside_unlearnt(gone) for gone in (0.25, -0.5, -4.0)]
    ['25% less than without labels', '50% more than without labels', '5 times what it was without labels']
    """
    if gone < -1.0:
        return f"{1.0 - gone:.2g} times what it was without labels"
    return f"{abs(gone):.0%} {'less' if gone >= 0 else 'more'} than without labels"
