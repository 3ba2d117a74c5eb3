"""A kit for pages: templates that escape, one style, a policy that lets nothing in or out, small tables."""

import base64
import hashlib
import platform
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from evenout import __version__


def template(package: str, name: str, **filters: Any) -> Any:
    """Load a template of a package; values are escaped, and a missing one is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package), undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(filters)
    return environment.get_template(name)


def style() -> str:
    """The style of every page."""
    return static("evenout.pages", "page.css")


def static(package: str, name: str) -> str:
    """A text file that comes with a package."""
    return files(package).joinpath("static", name).read_text(encoding="utf-8")


def safe(trusted: str) -> Any:
    """Mark trusted text as safe, unless it would end the element that it stands in."""
    from markupsafe import Markup

    if "</script" in trusted.lower() or "</style" in trusted.lower() or "<!--" in trusted:
        raise ValueError("a script or style sheet holds text that would end its element")
    return Markup(trusted)


def policy(*scripts: str) -> str:
    """A content security policy: nothing is fetched, and no script runs but these, even if escaping had a hole."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{text}'" for text in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A small table for notebooks; all text is escaped.

    >>> html_table(["group", "rows"], [["<b>", "3"]])
    '<table><thead><tr><th>group</th><th>rows</th></tr></thead><tbody><tr><th>&lt;b&gt;</th><td>3</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(text)}</td>' for text in rest)}</tr>"
        for first, *rest in rows
    )
    titled = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{titled}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def versions(python: str, *packages: str) -> dict[str, str]:
    """Versions that a result depends on: of Python, under the name ``python``, of evenout and of packages."""
    return {python: platform.python_version(), "evenout": __version__, **{name: version(name) for name in packages}}
