"""A real browser goes every way: from a file to its downloads, by mouse and by keyboard, on wide and narrow screens."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.browser

PATIENCE = 120_000  # milliseconds

CHECK = Path(__file__).with_name("accessibility.js").read_text()


@pytest.fixture
def tab(browser, page):
    """Open a tab on the page; what a browser complains of, or asks others for, is a fault."""
    complaints, opened = [], []

    def open_tab(width=1280, scheme="light", path="/"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        opened.append(context)
        new = context.new_page()
        new.set_default_timeout(PATIENCE)
        new.on("console", lambda message: complaints.append(message.text))
        new.on("pageerror", lambda error: complaints.append(str(error)))
        new.on(
            "request",
            lambda sent: complaints.append(sent.url) if not sent.url.startswith((page.origin, "data:")) else None,
        )
        new.goto(page.origin + page.root + path)
        return new

    yield open_tab
    for context in opened:
        context.close()
    assert complaints == []


def test_id(name):
    return f"[data-test='{name}']"


test_id.__test__ = False


def sound(tab):
    tab.wait_for_load_state("load")  # with its style
    assert tab.evaluate(CHECK) == []


def bring(tab, file, checks=True):
    tab.set_input_files(test_id("file"), file)
    tab.click(test_id("read"))
    tab.wait_for_selector(test_id("columns-done"))
    if checks:
        sound(tab)


def choose(tab, way, checks=True):
    tab.click(test_id("columns-done"))
    tab.wait_for_selector(test_id(f"way-{way}"))
    if checks:
        sound(tab)
    tab.click(test_id(f"way-{way}"))
    tab.wait_for_selector(test_id("run"))
    if checks:
        sound(tab)


def finished(tab, checks=True):
    tab.wait_for_selector("#downloads")
    if checks:
        sound(tab)


def download(tab, name):
    with tab.expect_download() as waiting:
        tab.click(test_id(f"get-{name}"))
    assert waiting.value.suggested_filename == name
    return waiting.value.path()


FAULTS = {
    "<button></button>": "no name",
    "<input id=x>": "no name",
    '<p id="x"></p><p id="x"></p>': "stands twice",
    "<h3>deep</h3>": "skips a level",
    '<a href="#" tabindex="3">first</a>': "an order of its own",
    '<p style="color: #888">pale</p>': "contrast 3.5",
    '<p style="width: 3000px">wide</p>': "wider than the screen",
    '<button style="height: 9px; min-height: 0; padding: 0; font-size: 8px">small</button>': "too small to hit",
    '<select aria-describedby="nowhere" aria-label="s"></select>': "nothing is called nowhere",
}


def test_the_check_finds_faults(browser):
    page = browser.new_page()
    whole = '<html lang="en"><title>t</title><body style="background: #fff"><main><h1>h</h1>{}</main>'
    page.set_content(whole.format("<p>fine</p>"))
    assert page.evaluate(CHECK) == []
    for fault, words in FAULTS.items():
        page.set_content(whole.format(fault))
        assert [line for line in page.evaluate(CHECK) if words in line], fault
    page.close()


def test_a_score_is_audited(tab, people):
    page = tab()
    sound(page)
    bring(page, people / "people.csv")
    title = page.locator("[data-column=title]")
    assert title.locator("[data-tells]").is_visible()
    assert title.locator(".kind").text_content() == "text"
    assert not page.locator("[data-column=home] [data-tells]").is_visible()
    page.select_option(test_id("role-sex"), "feature")
    assert not title.locator("[data-tells]").is_visible()
    page.select_option(test_id("role-sex"), "group")
    page.select_option(test_id("role-age"), "out")
    assert page.locator("[data-column=age] .advice").text_content() == "Not used at all."
    choose(page, "audit")
    page.locator(test_id("share")).press("ArrowRight")
    page.wait_for_function(
        "() => document.querySelector('[data-command]').textContent.includes('--contamination 0.11')"
    )
    assert page.locator("[data-reading=share]").text_content() == "11%, about 26 rows"
    shown = page.locator(test_id("command")).text_content()
    page.click(test_id("run"))
    finished(page)
    assert page.locator(test_id("command")).text_content() == shown
    assert download(page, "command.sh").read_text() == shown + "\n"
    assert "<title>Audit of people.csv" in download(page, "audit.html").read_text()
    assert len(pd.read_csv(download(page, "audit.csv"))) > 10
    inside = page.frame_locator(test_id("page"))
    assert inside.locator("h1").text_content() == "Audit of people.csv"
    assert (
        inside.locator("html").evaluate("() => { try { return parent.document.title } catch { return 'apart' } }")
        == "apart"
    )


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light"), (390, "dark")])
def test_the_way_to_a_fair_score_its_reasons_its_audit_and_new_rows(tab, people, tmp_path, width, scheme):
    page = tab(width, scheme)
    bring(page, people / "people.csv")
    page.select_option(test_id("role-age"), "out")
    page.select_option(test_id("role-title"), "out")
    choose(page, "fit")
    page.click("summary")
    sound(page)
    page.click(test_id("measure-flags"))
    page.wait_for_function(
        "() => document.querySelector('[data-command]').textContent.includes('--flag-rate-ratio 0.8')"
    )
    page.click(test_id("measure-means"))
    page.wait_for_function(
        "() => document.querySelector('[data-command]').textContent.includes('--bias-reduction 0.8')"
    )
    page.click(test_id("run"))
    page.wait_for_selector("[data-bar]")
    sound(page)
    finished(page)
    inside = page.frame_locator(test_id("page"))
    inside.locator("body[data-ready]").wait_for()
    before = inside.locator("[data-live=alpha]").first.text_content()
    inside.locator("#alpha").press("ArrowRight")
    assert inside.locator("[data-live=alpha]").first.text_content() != before
    page.locator("[data-person]").first.click()
    page.wait_for_selector(".why pre")
    assert page.locator(".why pre").text_content().startswith(page.locator(".people tbody th").first.text_content())
    sound(page)
    page.fill(test_id("find"), "p01")
    page.locator(test_id("find")).press("Enter")
    finished(page)
    ids = page.locator(".people tbody th").all_text_contents()
    assert ids
    assert all(name.startswith("p01") for name in ids)
    model = tmp_path / "model.skops"
    model.write_bytes(download(page, "model.skops").read_bytes())
    assert json.loads(download(page, "summary.json").read_text())["input"]["name"] == "people.csv"
    result = page.url
    page.click(test_id("score-new"))
    pd.read_csv(people / "people.csv").drop(columns=["sex", "risk"]).to_csv(tmp_path / "new.csv", index=False)
    bring(page, tmp_path / "new.csv")
    choose(page, "score")
    page.click(test_id("run"))
    finished(page)
    assert list(pd.read_csv(download(page, "scores.csv")).columns) == ["id", "fair_score", "flagged"]
    page.goto(result)
    page.click(test_id("score-new"))
    bring(page, tmp_path / "new.csv")
    choose(page, "plan")
    page.click(test_id("run"))
    finished(page)
    assert {"score", "chance"} <= {*pd.read_csv(download(page, "plan.csv"))["chosen by"]}
    page.goto(result)
    page.click(test_id("audit-scores"))
    page.wait_for_selector(test_id("columns-done"))
    choose(page, "audit")
    assert "--score fair_score --sensitive group --flagged flagged" in page.locator(test_id("command")).text_content()
    page.click(test_id("run"))
    finished(page)


@pytest.mark.long
def test_a_score_is_repaired_by_keyboard_alone(tab, people):
    """Nothing but Tab, Space, Enter and the arrows; the focus can always be seen."""
    page = tab(390)
    keys = page.keyboard

    def go_to(selector):
        for _ in range(400):
            keys.press("Tab")
            ring = "() => getComputedStyle(document.activeElement).outlineStyle"
            inside = page.evaluate("() => ['BODY', 'IFRAME'].includes(document.activeElement.tagName)")
            assert inside or page.evaluate(ring) != "none"
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"{selector} cannot be reached")

    go_to(test_id("file"))
    with page.expect_file_chooser() as chooser:
        keys.press("Space")
    chooser.value.set_files(people / "people.csv")
    go_to(test_id("read"))
    keys.press("Enter")
    page.wait_for_selector(test_id("columns-done"))
    go_to(test_id("role-age"))
    keys.type("Left")
    assert page.locator(test_id("role-age")).input_value() == "out"
    go_to(test_id("columns-done"))
    keys.press("Enter")
    page.wait_for_selector(test_id("way-repair"))
    go_to(test_id("way-repair"))
    keys.press("Enter")
    page.wait_for_selector(test_id("run"))
    go_to(test_id("evenness"))
    keys.press("ArrowLeft")
    page.wait_for_function(
        "() => document.querySelector('[data-command]').textContent.includes('--bias-reduction 0.75')"
    )
    go_to(test_id("run"))
    keys.press("Enter")
    finished(page)
    go_to(test_id("get-scores.csv"))
    with page.expect_download() as waiting:
        keys.press("Enter")
    assert len(pd.read_csv(waiting.value.path())) == 240


@pytest.mark.long
def test_cancel_reload_and_back_in_the_middle_of_a_fit(tab, page):
    client, page = page, tab()
    page.click(test_id("example-credit"))
    page.wait_for_selector(test_id("columns-done"))
    choose(page, "fit", checks=False)
    tasks = page.url
    page.click(test_id("run"))
    page.wait_for_function("() => Number(document.querySelector('[data-count]').textContent) >= 2")
    running = page.url
    page.reload()
    page.wait_for_function("() => Number(document.querySelector('[data-count]').textContent) >= 2")
    page.go_back()
    assert page.url.split("#")[0] == tasks.split("#")[0]
    page.go_forward()
    assert page.url == running
    page.wait_for_selector(test_id("cancel"))
    page.click(test_id("cancel"))
    page.wait_for_selector(test_id("run"))
    assert "way=fit" in page.url
    page.goto(running)
    assert page.locator("h1").text_content() == "Cancelled"
    home = next(client.folder.iterdir())
    assert not [
        path for folder in home.glob("r-*") for path in folder.glob("results*") if path.parent.name == newest(home)
    ]
    assert not [path for folder in home.glob("r-*") for path in folder.glob(".results-*")]


def newest(home):
    runs = [path for path in home.glob("r-*") if re.fullmatch(r"r-\d+", path.name)]
    return max(runs, key=lambda path: int(path.name[2:])).name


@pytest.mark.long
def test_two_tabs_do_not_mix(tab, people, tmp_path):
    other = pd.read_csv(people / "people.csv").rename(columns={"sex": "gender", "risk": "score"})
    other.to_csv(tmp_path / "other.csv", index=False)
    first, second = tab(), tab(390, "dark")
    for each, file in ((first, people / "people.csv"), (second, tmp_path / "other.csv")):
        bring(each, file, checks=False)
        each.select_option(test_id("role-age"), "out")
    for each in (second, first):
        choose(each, "audit", checks=False)
    for each in (first, second):
        each.click(test_id("run"))
    for each, sex in ((first, "sex"), (second, "gender")):
        finished(each, checks=False)
        assert f"--sensitive {sex}" in each.locator(test_id("command")).text_content()
        name = "people" if sex == "sex" else "other"
        assert f"Audit of {name}.csv" in download(each, "audit.html").read_text()


@pytest.mark.long
def test_files_that_are_too_large_or_none_are_said_so_on_the_page(tab, tmp_path):
    (tmp_path / "big.csv").write_bytes(b"a,b\n" + b"1,2\n" * 1_000_000)
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    page = tab()
    page.set_input_files(test_id("file"), tmp_path / "big.csv")
    assert "big.csv has 5 MB; at most 3 MB are taken in" in page.locator("[data-problem]").text_content()
    page.set_input_files(test_id("file"), tmp_path / "picture.csv")
    assert page.locator("[data-problem]").is_hidden()
    page.click(test_id("read"))
    page.wait_for_selector("header [role=alert]")
    assert "picture.csv holds binary data, not text" in page.locator("header [role=alert]").text_content()
    sound(page)
