"""Clicks become commands: what each control says on the command line, and that the command line knows it."""

import ast
import itertools
import shlex

import click
import pytest

from evenout.app.ways import MEASURES, ROLES, SETTINGS, WAYS, Request, UnfitError, checked
from evenout.cli import main

COLUMNS = [
    {"name": "person", "kind": "id", "note": "left out, text that tells rows apart"},
    {"name": "sex", "kind": "text", "note": ""},
    {"name": "age", "kind": "number", "note": ""},
    {"name": "home", "kind": "text", "note": ""},
    {"name": "income", "kind": "number", "note": ""},
    {"name": "name, first", "kind": "text", "note": ""},
    {"name": "fraud", "kind": "number", "note": ""},
    {"name": "risk", "kind": "number", "note": ""},
]
ROLE = {"person": "id", "sex": "group", "fraud": "label", "risk": "score"}


def command_of(name):
    """The command, which is loaded when it is asked for."""
    return main.get_command(click.Context(main), name)


def asked(way, roles=None, model=True, **settings):
    roles = {column["name"]: "feature" for column in COLUMNS} | ROLE | (roles or {})
    return Request(way, "people.csv", COLUMNS, roles, settings, model=model)


def said(way, roles=None, **settings):
    return asked(way, roles, **settings).command().removeprefix(f"evenout {way} ")


def test_each_way_says_what_was_clicked():
    assert said("audit") == (
        "people.csv --score risk --sensitive sex --label fraud --contamination 0.1 "
        "--page results/audit.html --out results/audit.csv"
    )
    assert said("fit", share="5", evenness="90", measure="flags", learn="yes") == (
        "people.csv --sensitive sex --id person --label fraud --drop risk --flag-rate-ratio 0.9 --contamination 0.05 "
        "--learn --out results"
    )
    assert said("repair", {"home": "given", "age": "number"}, count="20", confidence="0.95", cross="both") == (
        "people.csv --score risk --sensitive sex,age --id person --given home --label fraud --continuous age "
        "--bias-reduction 0.8 --contamination 20 --confidence 0.95 --cross both --out results"
    )
    assert said("score", reasons="3") == "model.skops people.csv --id person --reasons 3 --out results/scores.csv"


def test_columns_are_dropped_and_kept_by_name_only_where_the_command_would_not_do_it_by_itself():
    assert "--drop" not in said("fit", {"person": "out", "risk": "feature"})
    assert "--keep person" in said("fit", {"person": "feature"})
    assert "--drop 'name, first' --drop risk" in said("fit", {"name, first": "out"})
    assert "--drop home " in said("repair", {"home": "clusters"})


def test_a_setting_that_another_makes_void_is_not_said():
    assert "--confidence" not in said("fit", confidence="0.9", measure="flags")
    assert "--contamination" not in said("audit", threshold="3", count="5")
    assert "--contamination" not in said("audit", {"age": "flagged"})
    assert "--threshold" not in said("audit", {"age": "flagged"}, threshold="3")
    assert "--flag-means" not in said("audit", meaning="good")
    assert "--cross" not in said("fit", cross="no")
    assert "--cross no" in said("fit", {"age": "number"})
    assert "--cross" not in said("fit", {"age": "number"}, cross="yes")
    assert "--fairness" not in said("repair", aware="yes", fairness="equal_opportunity")
    assert "--features age,income" in said("audit", features="yes")


@pytest.mark.parametrize(
    ("way", "roles", "line"),
    [
        ("audit", {"risk": "out"}, "marked “The score”"),
        ("audit", {"sex": "out"}, "marked “Protected group”"),
        ("fit", {"sex": "feature"}, "marked “Protected group”"),
        ("repair", {"risk": "feature"}, "marked “The score”"),
        ("fit", {"home": "id"}, "Only one column can be “Id of the row”, not person and home"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(way, roles, line):
    with pytest.raises(UnfitError, match=line):
        asked(way, roles).arguments()
    assert asked("fit", {"sex": "out", "age": "number"}).arguments()
    with pytest.raises(UnfitError, match="needs a model"):
        asked("score", model=False).arguments()


@pytest.mark.parametrize("way", WAYS)
def test_the_command_line_takes_every_choice_of_every_control(way):
    """Options and values are those of the command, so that a new name there is noticed here."""
    command = command_of(way)
    choices = [
        {name: value}
        for name in WAYS[way].settings
        for value in (SETTINGS[name].choices or [f"{end:.0f}" for end in SETTINGS[name].span[:2]])
    ]
    roles = [{"home": role} for role in ROLES if role not in ("score", "label", "id")]
    for settings, role, measure in itertools.product(choices, roles, MEASURES):
        arguments = asked(way, role, **checked({"measure": measure, **settings})).arguments()
        with command.make_context(way, arguments[1:]) as context:
            assert context.params["out"] is not None


def test_options_of_the_table_exist():
    for name, way in WAYS.items():
        options = {text for option in command_of(name).params for text in option.opts}
        assert {*way.roles.values(), *way.outputs[::2]} <= options
        assert {SETTINGS[setting].option for setting in way.settings} - {""} <= options
        assert "evenness" not in way.settings or {option for option, *_ in MEASURES.values()} <= options
        assert sum(SETTINGS[setting].slider for setting in way.settings) <= 3


@pytest.mark.parametrize(
    "form",
    [
        {"share": "0"}, {"share": "51"}, {"share": "nan"}, {"share": "ten"}, {"evenness": "80.5"}, {"count": "-1"},
        {"threshold": "inf"}, {"seed": "1e99"}, {"confidence": "2"}, {"fairness": "none"}, {"reasons": "--help"},
        {"aware": "true"},
    ],
)  # fmt: skip
def test_values_that_no_control_holds_are_refused(form):
    with pytest.raises(UnfitError, match=r"must be|cannot be"):
        checked(form)


def test_strange_names_stay_one_word():
    columns = [
        {"name": name, "kind": "number", "note": ""} for name in ("-x", "a b", "$(id)", "new\nline", "'", "s", "r")
    ]
    roles = {"s": "group", "r": "score", "-x": "out", "a b": "out", "$(id)": "out", "new\nline": "given", "'": "given"}
    request = Request("fit", "t.csv", columns, roles, {})
    assert shlex.split(request.command())[1:] == request.arguments()
    with command_of("fit").make_context("fit", request.arguments()[1:]) as context:
        assert isinstance(context, click.Context)
        assert context.params["drop"] == ("-x,a b,$(id),r",)
    tree = ast.parse(request.code())
    assert {type(node) for node in tree.body} == {ast.ImportFrom, ast.Import, ast.Assign, ast.Expr}
    assert [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names] == ["pandas"]
