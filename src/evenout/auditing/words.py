"""Numbers and names, fit to print."""

import numpy as np

TOO_FEW = "too few rows to measure"


def shown(name: str, width: int | None = None) -> str:
    """A name from the data, fit to print: no line breaks or control characters, cut to ``width``."""
    clean = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    return clean if width is None or len(clean) <= width else clean[: width - 1] + "…"


def number(value: float) -> str:
    """Three significant digits, or a dash."""
    return "-" if np.isnan(value) else f"{value:.3g}"


def between(low: float, high: float) -> str:
    """An interval, or nothing."""
    return "" if np.isnan(low) else f"{number(low)} to {number(high)}"


def chance(p: float) -> str:
    """A p-value, or nothing."""
    return "" if np.isnan(p) else ("< 0.001" if p < 0.001 else f"{p:.3f}")
