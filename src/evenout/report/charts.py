"""Curves that stand still: plain SVG, drawn without scripts, in the colours of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

Ends: TypeAlias = tuple[tuple[float, ...], ...]
WIDTH, HEIGHT = 460, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 10, 34


@dataclass(frozen=True)
class CurvePair:
    """Mean score and flag rate against a number, before and after: value, low and high end at each place."""

    name: str
    at: tuple[float, ...]
    before: Ends
    after: Ends
    rate_before: Ends
    rate_after: Ends


class Drawing(NamedTuple):
    """Two curves, before and after: paths in a box of `WIDTH` x `HEIGHT`, and ticks as (place, label)."""

    title: str
    label: str
    before: str
    after: str
    band_before: str
    band_after: str
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


class DrawnPair(NamedTuple):
    """Mean score and flag rate against one number."""

    name: str
    drawings: tuple[Drawing, Drawing]


def draw_curves(pair: CurvePair) -> DrawnPair:
    """Both pictures of a number."""
    score = _draw("Average score", pair, pair.before, pair.after, "{:.2f}")
    rate = _draw("Share flagged", pair, pair.rate_before, pair.rate_after, "{:.0%}")
    return DrawnPair(pair.name, (score, rate))


def _draw(title: str, pair: CurvePair, before: Ends, after: Ends, style: str) -> Drawing:
    both = np.array([before, after])
    ticks = nice_ticks(float(both.min()), float(both.max()))
    low, high = min(ticks[0], float(both.min())), max(ticks[-1], float(both.max()))
    at = np.array(pair.at)
    x = _LEFT + (WIDTH - _LEFT - _RIGHT) * (at - at[0]) / (at[-1] - at[0])
    y = _TOP + (HEIGHT - _TOP - _BOTTOM) * (high - both) / (high - low)
    across = nice_ticks(float(at[0]), float(at[-1]), 6)
    named = zip(np.interp(across, at, x).tolist(), across, strict=True)
    heights = [(_TOP + (HEIGHT - _TOP - _BOTTOM) * (high - tick) / (high - low), style.format(tick)) for tick in ticks]
    first, last = both[0, 0], both[1, 0]
    label = (
        f"{title} against {pair.name}: before from {style.format(first.min())} to {style.format(first.max())}, "
        f"now from {style.format(last.min())} to {style.format(last.max())}."
    )
    return Drawing(
        title, label, _line(x, y[0, 0]), _line(x, y[1, 0]), _band(x, y[0]), _band(x, y[1]),
        [(place, f"{tick:g}") for place, tick in named], heights,
    )  # fmt: skip


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers within an interval, or its ends if there are none.

    >>> nice_ticks(21.3, 67.0)
    [30.0, 40.0, 50.0, 60.0]
    """
    size = (high - low) / most
    if not size > 0:
        return [low, low + 1.0]
    unit = 10.0 ** np.floor(np.log10(size))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= size)
    ticks = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    return [float(f"{tick:.10g}") for tick in ticks] if len(ticks) >= 2 else [low, high]


def _line(x: Sequence[float], y: Sequence[float]) -> str:
    points = [f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True)]
    return "M" + "L".join(points)


def _band(x: Sequence[float], y: Sequence[Sequence[float]]) -> str:
    """The area between the low and the high end."""
    back = list(zip(x, y[1], strict=True))[::-1]
    points = [*zip(x, y[2], strict=True), *back]
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points) + "Z"
