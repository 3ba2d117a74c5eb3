"""Second stage of a report: from plain data to one HTML page that needs nothing else."""

import base64
import hashlib
import json
import math
from dataclasses import asdict
from functools import lru_cache, reduce
from importlib.resources import files
from typing import Any

from evenout.core.exceptions import from_extra
from evenout.reasons.words import PROXY
from evenout.report import words
from evenout.report.data import ReportData

_DIGITS = 6  # that count, of numbers for the charts
_SCRIPTS = ("charts.js", "people.js", "report.js")


def render(data: ReportData) -> str:
    """The page as a string; the same data give the same bytes."""
    library, script = _plotting_library(), _own_script()
    steps = [words.step_words(data, place) for place in range(len(data.steps))]
    page = template("evenout.report", "report.html.j2", at=_at, percent=words.percent, people=words.people)
    return page.render(
        data=data,
        headline=words.headline(data),
        gap=words.gap_name(data),
        base=words.score_words(data, data.base),
        steps=steps,
        now=steps[data.chosen],
        proxy=PROXY,
        widest=_widest(data),
        payload=_embedded(_payload(data, steps)),
        style=_safe(_static("report.css")),
        library=_safe(library),
        script=_safe(script),
        policy=_policy(library, script),
    )


def _widest(data: ReportData) -> float:
    """The largest share of a feature in the gap, for the bars."""
    features = () if data.gap_features is None else data.gap_features.features
    return max((abs(share) for each in features for share in (each.base, each.fair)), default=0.0) or 1.0


def template(package: str, name: str, **filters: Any) -> Any:
    """A template of a package: what is put in is escaped, and what is not there is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    settings: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader(package), undefined=StrictUndefined, **settings)
    environment.filters |= filters
    return environment.get_template(name)


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


def _safe(trusted: str) -> Any:
    """Our own or the library's text, which must not end the element that it stands in."""
    from markupsafe import Markup

    if "</script" in trusted.lower() or "</style" in trusted.lower() or "<!--" in trusted:
        raise ValueError("a script or style sheet holds text that would end its element")
    return Markup(trusted)


@lru_cache(maxsize=1)
def _plotting_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which puts ``vegaEmbed`` into the page."""
    vl_convert = from_extra("vl_convert", "pages", "the report")
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def _own_script() -> str:
    parts = "\n".join(_static(name) for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();'


def _static(name: str) -> str:
    return files("evenout.report").joinpath("static", name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    """Nothing is fetched, and no script runs but these: even a hole in the escaping would stay shut."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{text}'" for text in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
