"""From clicks to a command: the ways, roles and settings of ``static/ways.toml``, and the command that they make."""

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenout.cli.messages import one_line
from evenout.pages import static, template

RESULTS = "results"  # folder for what a command writes, beside the table
MODEL = "model.skops"
_SINGLE = ("score", "label", "id", "clusters", "flagged")  # roles of one column
_REASONS = "Finding reasons"  # a stage of those that ask for them
_FLAGS = ("learn", "aware")  # settings whose option takes no value


@dataclass(frozen=True)
class Setting:
    """One control of the page, and the option that it sets; see ``ways.toml``."""

    option: str
    label: str
    advice: str
    default: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    span: Sequence[float] = ()
    slider: bool = False
    unit: str = "%"
    argument: str = ""
    needs: str = ""
    usual: str | None = None
    code: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Way:
    """A command, and what the page must know of it; see ``ways.toml``."""

    title: str
    words: str
    done: str
    needs: Sequence[str]
    roles: Mapping[str, str]
    settings: Sequence[str]
    outputs: Sequence[str]
    results: Mapping[str, str]
    stages: Mapping[str, str]
    drops: bool = False


_TABLES = tomllib.loads(static("evenout.app", "ways.toml"))
ROLES: dict[str, tuple[str, str]] = _TABLES["roles"]
MEASURES: dict[str, tuple[str, str, str]] = _TABLES["measures"]
SETTINGS = {name: Setting(**fields) for name, fields in _TABLES["settings"].items()}
WAYS = {name: Way(**fields) for name, fields in _TABLES["ways"].items()}
_COLUMNS = _TABLES["columns"]


class UnfitError(ValueError):
    """Something is missing or wrong; one sentence for the page."""


@dataclass(frozen=True)
class Request:
    """The choices that were clicked."""

    way: str
    file: str  # name of the table, beside which the command runs
    columns: Sequence[Mapping[str, Any]]  # as `evenout.app.look` describes them
    roles: Mapping[str, str]
    settings: Mapping[str, str]  # and "measure"; what is absent has its default
    model: bool = False  # whether there is one beside the table

    def arguments(self) -> list[str]:
        """The command line after ``evenout``."""
        self._require()
        way = WAYS[self.way]
        said = [self.way, *([MODEL] if "model" in way.needs else []), self.file]
        said += [word for option, names in self._options_of_columns() for word in _listed(option, names)]
        chosen = ([option] if name in _FLAGS else [option, value] for name, option, value in self._chosen())
        return [*said, *(word for words in chosen for word in words), *way.outputs]

    def command(self) -> str:
        """The command line as it can be typed beside the table."""
        return shlex.join(["evenout", *self.arguments()])

    def code(self) -> str:
        """Python that does the same beside the table; ``again.csv`` gets the command's scores or measures."""
        return template("evenout.app", "command.py.j2", py=repr).render(
            command=one_line(self.command()), request=self, arguments=self._arguments_in_python(), keep=self._kept(),
            protected=self.named("group", "number"), features=self._looked_at(), model=MODEL,
            no_features=[*self._without_role(), *self.named(*{*WAYS[self.way].roles} - {"given"})],
        )  # fmt: skip

    def stages(self) -> dict[str, str]:
        """The stages of the command: how their names begin, and what to call them."""
        return {
            start: words for start, words in WAYS[self.way].stages.items() if start != _REASONS or self.value("reasons")
        }

    def named(self, *roles: str) -> list[str]:
        """Columns with one of these roles, in the order of the table."""
        return [column["name"] for column in self.columns if self.roles.get(column["name"]) in roles]

    def value(self, name: str) -> str:
        """A setting as it stands; empty where the way has none of that name."""
        return self.settings.get(name, SETTINGS[name].default) if name in WAYS[self.way].settings else ""

    def _require(self) -> None:
        for role in WAYS[self.way].needs:
            if role == "model" and not self.model:
                raise UnfitError("This needs a model: bring one, or make a fair score first.")
            if role != "model" and not self.named(*(("group", "number") if role == "group" else (role,))):
                raise UnfitError(f"This needs a column that is marked “{ROLES[role][0]}”: change the columns.")
        for role in _SINGLE:
            if len(self.named(role)) > 1:
                raise UnfitError(f"Only one column can be “{ROLES[role][0]}”, not {' and '.join(self.named(role))}.")

    def _options_of_columns(self) -> Iterator[tuple[str, list[str]]]:
        roles = WAYS[self.way].roles
        for option in dict.fromkeys(roles.values()):
            yield option, self.named(*(role for role, each in roles.items() if each == option))
        if "number" in roles:
            yield _COLUMNS["number"], self.named("number")
        if WAYS[self.way].drops:
            yield _COLUMNS["drop"], [name for name in self._without_role() if name not in self._left_out()]
            yield _COLUMNS["keep"], self._kept()
        yield _COLUMNS["features"], self._looked_at()

    def _without_role(self) -> list[str]:
        """Columns that are neither features nor of use to the command."""
        known = {*WAYS[self.way].roles, "feature", "given"}
        return [column["name"] for column in self.columns if self.roles.get(column["name"], "feature") not in known]

    def _left_out(self) -> list[str]:
        """Columns that the command leaves out by itself."""
        return [column["name"] for column in self.columns if column["note"].startswith("left out")]

    def _kept(self) -> list[str]:
        return [name for name in self.named("feature", "given") if name in self._left_out()]

    def _looked_at(self) -> list[str]:
        """Features that an audit holds against the gap."""
        numbers = {column["name"] for column in self.columns if column["kind"] == "number"}
        return [name for name in self.named("feature", "given") if name in numbers and self.value("features")]

    def _chosen(self) -> Iterator[tuple[str, str, str]]:
        """Settings that differ from what the command does by itself: name, option and value."""
        flags, aware = self.settings.get("measure") == "flags", self.value("aware")
        void = {
            "share": self.value("count") or self.value("threshold") or self.named("flagged"),
            "count": self.value("threshold") or self.named("flagged"),
            "threshold": self.named("flagged"),
            "confidence": flags or aware,
            "fairness": aware,
            "seed": aware,
            "meaning": not self.value("tables"),
            "cross": aware or len(self.named("group", "number")) < 2,
            "features": True,  # an option of columns
        }
        for name in WAYS[self.way].settings:
            setting, value = SETTINGS[name], self.value(name)
            option = MEASURES["flags" if flags else "means"][0] if name == "evenness" else setting.option
            usual = setting.default if setting.usual is None else setting.usual
            if (setting.slider or value != usual) and not void.get(name):
                yield name, option, f"{float(value) / 100:g}" if setting.slider and setting.unit == "%" else value

    def _arguments_in_python(self) -> dict[str, str]:
        """Settings as arguments of the Python function, in code; those of `evenout.Groups` are gathered in one."""
        code = {} if self.value("aware") else {"random_state": "0"}
        for name, option, value in self._chosen():
            argument = option[2:].replace("-", "_") if name == "evenness" else SETTINGS[name].argument
            code |= {argument: SETTINGS[name].code.get(value) or _literal(value)} if argument else {}
        if "number" in WAYS[self.way].roles and self.named("number"):
            code[_COLUMNS["argument"]] = repr(tuple(self.named("number")))
        rules = [name for name in code if name.startswith("groups__")]
        inside = ", ".join(f"{name.removeprefix('groups__')}={code.pop(name)}" for name in rules)
        return code | ({"groups": f"Groups({inside})"} if inside else {})


def checked(form: Mapping[str, str]) -> dict[str, str]:
    """The settings among the fields of a form; a value that its control cannot hold is refused."""
    settings = {"measure": form["measure"]} if form.get("measure") in MEASURES else {}
    for name, setting in SETTINGS.items():
        settings[name] = value = form.get(name, setting.default).strip()
        if setting.choices and value not in setting.choices:
            raise UnfitError(f"“{setting.label}” cannot be {value[:80]!r}.")
        if setting.span and value:
            low, high, step = setting.span
            try:
                number = float(value)
            except ValueError:
                raise UnfitError(f"“{setting.label}” must be a number.") from None
            if not low <= number <= high or (step and number != int(number)):
                kind = "a whole number" if step else "a number"
                raise UnfitError(f"“{setting.label}” must be {kind} between {low:,g} and {high:,g}.")
            settings[name] = str(int(number)) if step else value
    return settings


def _literal(value: str) -> str:
    return value if value.replace(".", "", 1).removeprefix("-").isdecimal() else repr(value)


def _listed(option: str, names: Sequence[str]) -> list[str]:
    """Columns in one list, or one by one where a comma or a space at an end would be misread."""
    if all(name == name.strip() and "," not in name for name in names):
        return [option, ",".join(names)] if names else []
    return [word for name in names for word in (option, name)]
