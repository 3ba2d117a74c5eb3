"""Pictures of a trade-off and of group scores, in the style of scikit-learn's displays; matplotlib loads when used."""

from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from evenout.core.flags import flag_rates, flag_threshold
from evenout.core.types import FloatArray
from evenout.exceptions import from_extra
from evenout.groups.read import Codes, read_groups
from evenout.tables.parameters import SHARE_OR_COUNT, check_parameters

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["GroupScoresDisplay", "TradeoffDisplay"]

# Okabe and Ito's colours, for any colour vision; dashes distinguish more than eight groups
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#999999")
_DASHES = ("-", "--", ":", "-.")
_POINTS = 2_000  # of a curve


class TradeoffDisplay:
    """The price of fairness: bias against misfit to the base score, along all trade-off parameters.

    Use `from_estimator`. Lower is fairer, further right is further from the base score; the dot is the chosen alpha.

    Parameters
    ----------
    table : frame
        Columns ``alpha``, ``f1``, ``bias_unseen``, its interval ``low_unseen`` and ``high_unseen``, and
        ``bias_training``, as of ``TradeoffPath.table``, ascending.
    base_bias : dict
        Bias of the base score on ``"unseen"`` and ``"training"`` rows.
    chosen : dict
        The row of the table, as a dict, at the model's own alpha.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : dict of matplotlib Line2D
        The curves on ``"unseen"`` and ``"training"`` rows.
    band_ : matplotlib PolyCollection
        The 95 % interval of the bias on unseen rows.

    Examples
    --------
    >>> from evenout.displays import TradeoffDisplay
    >>> TradeoffDisplay.from_estimator(model)  # doctest: +SKIP
    """

    def __init__(self, *, table: "pd.DataFrame", base_bias: dict[str, float], chosen: dict[str, float]) -> None:
        self.table, self.base_bias, self.chosen = table, base_bias, chosen

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, alphas: FloatArray | None = None, ax: "Axes | None" = None, **kwargs: Any
    ) -> Self:
        """Draw the trade-off of a fitted `evenout.FairOutlierEnsemble`.

        Parameters
        ----------
        estimator : FairOutlierEnsemble
        alphas : array of shape (m,), optional
            Trade-off parameters to draw; by default 0 and the path's grid.
        ax : matplotlib Axes, optional
        **kwargs
            For the curves.
        """
        check_is_fitted(estimator)
        path = estimator.path_
        return cls(
            table=path.table(alphas if alphas is None else np.sort(alphas)),
            base_bias={target: path.target_bias(target) for target in ("unseen", "training")},
            chosen=path.table(np.array([estimator._result.choice.alpha])).iloc[0].to_dict(),
        ).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw into ``ax``, or into a new figure; ``kwargs`` go to the curves."""
        self.ax_, self.figure_ = _axes(ax)
        self.lines_: dict[str, Any] = {}
        style = {"unseen": ("-", "new rows (cross-fitted)"), "training": ("--", "training rows")}
        for (target, (dash, label)), colour in zip(style.items(), _COLOURS, strict=False):
            options = {"color": colour, "linestyle": dash, "label": label, **kwargs}
            (self.lines_[target],) = self.ax_.plot(self.table["f1"], self.table[f"bias_{target}"], **options)
            self.ax_.axhline(self.base_bias[target], color=colour, linestyle=dash, linewidth=0.8, alpha=0.5)
            self.ax_.plot(self.chosen["f1"], self.chosen[f"bias_{target}"], "o", color=colour)
        self.band_ = self.ax_.fill_between(
            "f1", "low_unseen", "high_unseen", data=self.table, color=_COLOURS[0], alpha=0.12, linewidth=0
        )
        self.ax_.axhline(0.0, color="0.6", linewidth=0.8)
        self.ax_.annotate(
            f"alpha = {self.chosen['alpha']:.3g}",
            (self.chosen["f1"], self.chosen["bias_unseen"]),
            xytext=(6, 6),
            textcoords="offset points",
        )
        self.ax_.set(xlabel="misfit to the base score (f1)", ylabel="group bias, scale-free")
        self.ax_.legend(title="bias on; band: 95 % interval; thin: base score", frameon=False)
        return self


class GroupScoresDisplay:
    """Share of each group above every score, with the threshold above which rows are flagged.

    Use `from_scores`. Where a group's curve meets the threshold, it shows the group's flag rate (the dot); curves that
    lie on each other are scores that treat groups alike at every threshold.

    Parameters
    ----------
    scores : array of shape (n,)
    groups : Codes
    contamination : float or int
        Share of the rows that is flagged, or a count of rows.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_, flag_rates_ : dict of matplotlib Line2D, and of float
        By group name.

    Examples
    --------
    >>> from evenout.displays import GroupScoresDisplay
    >>> GroupScoresDisplay.from_scores(scores, sensitive_features=groups)  # doctest: +SKIP
    """

    def __init__(self, *, scores: FloatArray, groups: Codes, contamination: float) -> None:
        self.scores, self.groups, self.contamination = scores, groups, contamination
        rates = flag_rates(scores, groups.codes, len(groups.labels), contamination)
        self.flag_rates_ = dict(zip(groups.labels, rates.tolist(), strict=True))

    @classmethod
    def from_scores(
        cls,
        scores: Any,
        *,
        sensitive_features: Any,
        contamination: float = 0.1,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the scores of each group.

        Parameters
        ----------
        scores : array of shape (n,)
            Higher = more outlying.
        sensitive_features : array, series or frame
        contamination : float in (0, 0.5] or int, default=0.1
            Share of the rows that is flagged; a whole number is a count of rows.
        ax : matplotlib Axes, optional
        **kwargs
            For the curves.
        """
        values = np.asarray(scores, dtype=float)
        if values.ndim != 1 or not np.isfinite(values).all():
            raise ValueError(f"scores must be finite numbers of shape (n,), got shape {values.shape}")
        check_parameters({"contamination": contamination}, {"contamination": SHARE_OR_COUNT})
        groups = read_groups(sensitive_features, len(values), rows=scores)
        return cls(scores=values, groups=groups, contamination=contamination).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw into ``ax``, or into a new figure; ``kwargs`` go to the curves."""
        self.ax_, self.figure_ = _axes(ax)
        self.lines_: dict[str, Any] = {}
        threshold = float(flag_threshold(self.scores, self.contamination))
        span = (self.scores.min(), self.scores.max())
        flagged = f"{100 * self.contamination:.3g}% of all"
        if isinstance(self.contamination, Integral):
            flagged = f"{self.contamination:,} of {len(self.scores):,}"
        self.ax_.axvline(threshold, color="0.4", linewidth=0.8, label=f"threshold: {flagged} flagged")
        for g, (name, rate) in enumerate(self.flag_rates_.items()):
            options = {
                "color": _COLOURS[g % len(_COLOURS)],
                "linestyle": _DASHES[g // len(_COLOURS) % len(_DASHES)],
                "label": f"{name}: {rate:.1%} of {self.groups.counts[g]:,}",
                **kwargs,
            }
            ordered = np.sort(self.scores[self.groups.codes == g])
            some = np.unique(np.linspace(0, len(ordered) - 1, _POINTS).astype(np.intp))
            x = np.concatenate([span[:1], ordered[some], span[1:]])
            share = (len(ordered) - np.searchsorted(ordered, x, side="right")) / len(ordered)
            (self.lines_[name],) = self.ax_.plot(x, share, drawstyle="steps-post", **options)
            self.ax_.plot(threshold, rate, "o", color=self.lines_[name].get_color())
        self.ax_.set(xlabel="score (higher = more outlying)", ylabel="share of the group above", ylim=(-0.02, 1.02))
        self.ax_.yaxis.set_major_formatter("{x:.0%}")
        self.ax_.legend(frameon=False)
        return self


def _axes(ax: "Axes | None") -> tuple["Axes", Any]:
    """The axes to draw into and their figure; a new one if none is given."""
    plt = from_extra("matplotlib.pyplot", "pages", "a display")
    axes = plt.subplots(layout="constrained")[1] if ax is None else ax
    return axes, axes.figure
