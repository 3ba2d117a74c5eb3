"""Second stage of a report: from plain data to one HTML page that needs nothing else."""

import json
import math
from dataclasses import asdict
from functools import lru_cache, reduce
from typing import Any

from evenout.core.exceptions import from_extra
from evenout.pages import policy, safe, static, style, template
from evenout.reasons.words import PROXY
from evenout.report import words
from evenout.report.data import ReportData
from evenout.report.drawing import draw_curves

_DIGITS = 6  # that count, of numbers for the charts
_SCRIPTS = ("charts.js", "people.js", "report.js")


def render(data: ReportData) -> str:
    """The page as a string; the same data give the same bytes."""
    library, script = _plotting_library(), _own_script()
    steps = [words.step_words(data, place) for place in range(len(data.steps))]
    page = template(
        "evenout.report", "report.html.j2", at=_at, percent=words.percent, people=words.people, number=words.number
    )
    return page.render(
        data=data,
        headline=words.headline(data),
        gap=words.gap_name(data),
        base=words.score_words(data, data.base),
        steps=steps,
        now=steps[data.chosen],
        curves=[draw_curves(pair) for pair in data.compared.curves] if data.compared else [],
        proxy=PROXY,
        widest=_widest(data),
        payload=_embedded(_payload(data, steps)),
        style=safe(style()),
        library=safe(library),
        script=safe(script),
        policy=policy(library, script),
    )


def _widest(data: ReportData) -> float:
    """The largest share of a feature in the gap, for the bars."""
    features = () if data.gap_features is None else data.gap_features.features
    return max((abs(share) for each in features for share in (each.base, each.fair)), default=0.0) or 1.0


def _payload(data: ReportData, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """What the page's script reads: the numbers for the charts and the words of every step."""
    everything = asdict(data)
    shown = ("groups", "detectors", "edges", "base", "steps", "chosen", "people", "labels")
    payload = {name: _rounded(everything[name]) for name in shown}
    for step, text in zip(payload["steps"], steps, strict=True):
        step["words"] = text
    return payload


def _rounded(value: Any) -> Any:
    """Numbers with a few digits that count; what is not finite becomes null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _embedded(payload: dict[str, Any]) -> Any:
    """JSON that can stand inside a script element: no character in it means anything to HTML."""
    from markupsafe import Markup

    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e"))


def _at(tree: Any, path: str) -> Any:
    """``tree["rates"][0]`` for ``"rates.0"``."""
    return reduce(lambda node, key: node[int(key)] if isinstance(node, list) else node[key], path.split("."), tree)


@lru_cache(maxsize=1)
def _plotting_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which puts ``vegaEmbed`` into the page."""
    vl_convert = from_extra("vl_convert", "pages", "the report")
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _own_script() -> str:
    parts = "\n".join(static("evenout.report", name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();'
