"""Several protected columns, each audited by itself."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from evenout.auditing.result import AuditResult

if TYPE_CHECKING:
    import pandas as pd

    from evenout.auditing.drift import DriftResult
    from evenout.auditing.practice import PracticeTable


class _Finding(Protocol):
    @property
    def verdict(self) -> tuple[str, ...]: ...
    def to_frame(self) -> "pd.DataFrame": ...
    def to_dict(self) -> dict[str, Any]: ...


Found = TypeVar("Found", bound=_Finding)


class PerAttribute(Mapping[str, Found]):
    """A result for each protected column, by its name."""

    def __init__(self, results: Mapping[str, Found]) -> None:
        self._results = dict(results)

    def __getitem__(self, name: str) -> Found:
        if name not in self._results:
            raise KeyError(f"no attribute {name!r}; there are {', '.join(map(repr, self._results))}")
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    @property
    def verdict(self) -> tuple[str, ...]:
        """What was found, in sentences, each with its column."""
        return tuple(f"{name}: {sentence}" for name, result in self.items() for sentence in result.verdict)

    def to_frame(self) -> "pd.DataFrame":
        """The rows of each result, with the column in front."""
        import pandas as pd

        frames = []
        for name, result in self.items():
            frame = result.to_frame()
            frame.insert(0, "attribute", name)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def to_dict(self) -> dict[str, Any]:
        """Each result, of types that JSON has."""
        return {name: result.to_dict() for name, result in self.items()}

    def __repr__(self) -> str:
        return "\n\n".join(f"{name}\n{'=' * len(name)}\n{result!r}" for name, result in self.items())


class AttributeAudits(PerAttribute[AuditResult]):
    """An audit for each protected column, by its name, and perhaps one for their crossing.

    Corrected p-values are corrected for the tests of all columns together.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from evenout import audit
    >>> rng = np.random.default_rng(0)
    >>> people = pd.DataFrame({"sex": rng.choice(["f", "m"], 400), "region": rng.choice(["n", "s"], 400)})
    >>> found = audit(rng.normal(size=400) + (people["sex"] == "f"), sensitive_features=people, intersections=False)
    >>> list(found)
    ['sex', 'region']
    >>> found["region"].get("demographic_parity").p > 0.05
    True
    """

    def compare(self, baseline: "AttributeAudits") -> "PerAttribute[DriftResult]":
        """Hold each column of this batch against the same of an earlier one."""
        return PerAttribute({name: audit.compare(baseline[name]) for name, audit in self.items()})

    def table(self, kind: str, *, flag_means: str = "bad", reference: str | Sequence[str] = ()) -> "PracticeTable":
        """One table of all columns; see `AuditResult.table`."""
        from dataclasses import replace

        from evenout.auditing.practice import practice_table

        parts = [found.everyone for found in self.values() if found.everyone is not None]
        people = replace(parts[0], attributes=tuple(part.attributes[-1] for part in parts))
        confidence = next(iter(self.values())).settings["confidence"]
        return practice_table(people, kind, flag_means=flag_means, reference=reference, confidence=confidence)

    def to_html(self, *, tables: Sequence[str] = (), **options: Any) -> str:
        """One page of all columns, as a string; see `AuditResult.save`."""
        from evenout.auditing.page import audit_page

        of_tables = {name: options.pop(name) for name in ("flag_means", "reference") if name in options}
        return audit_page(self, [self.table(kind, **of_tables) for kind in tables], **options)

    def save(self, path: "str | PathLike[str]", *, tables: Sequence[str] = (), **options: Any) -> None:
        """Write a page of all columns to hand over; see `AuditResult.save`."""
        from evenout.auditing.page import write_audit_page

        write_audit_page(Path(path), self.to_html(tables=tables, **options))

    def _repr_html_(self) -> str:
        return "".join(result._repr_html_() for result in self.values())
