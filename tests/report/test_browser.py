"""A real browser drives the page: no error, no request, and every panel follows the slider."""

import numpy as np
import pytest
from sklearn.base import clone

from evenout.metrics import flag_rates
from evenout.outcome import number
from evenout.report import words, write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(case, tmp_path_factory, date):
    path = tmp_path_factory.mktemp("report") / "report.html"
    ids = [f"<b>{row}</b>" for row in range(1000)]
    write_report(
        case.model,
        path,
        X=case.X,
        sensitive_features=case.sensitive,
        labels=case.y,
        ids=ids,
        title="<i>T</i>",
        date=date,
    )
    return path.as_uri()


@pytest.fixture(scope="module")
def opened(browser, address):
    """The page, drawn, with all that it complains about and asks for."""
    page = browser.new_page(color_scheme="light")
    complaints, requests = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    page.wait_for_selector("body[data-ready]", timeout=20_000)
    return page, complaints, requests


@pytest.fixture
def page(opened):
    """The page at its chosen setting; afterwards: nothing was complained about, and nothing was fetched."""
    page, complaints, requests = opened
    page.locator("[data-test=chosen]").click()
    page.locator("[data-test=find]").fill("")
    page.locator("[data-test=direction]").select_option("all")
    yield page
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


def move_to(page, step):
    page.locator("[data-test=slider]").evaluate(
        "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }", step
    )


def live(page, name):
    return page.locator(f"[data-live='{name}']").first.text_content()


def test_slider_moves_bias_rates_and_list_to_what_python_computes(page, case, data):
    names = [group.name for group in data.groups]
    path, target = case.model.path_, case.model.target_
    for place in (len(data.steps) - 1, data.chosen, data.chosen + 5):
        step = data.steps[place]
        assert step.moves.enter[0] >= 10
        move_to(page, place)
        refitted = clone(case.model).set_params(alpha=step.alpha).fit(case.X, sensitive_features=case.sensitive)
        rates = flag_rates(refitted.outlier_scores_, sensitive_features=case.sensitive)
        shown = [live(page, f"rates.{g}") for g in range(3)]
        assert shown == [f"{100 * rates[name]:.1f}%" for name in names]
        low, high = map(float, path.interval(step.alpha))
        assert live(page, "bias") == number(max(float(path.bias(step.alpha)), low))
        assert live(page, "interval") == f"{number(low)} to {number(high)}"
        before, now = target > np.percentile(target, 90), refitted.predict(case.X) == -1
        assert listed(page) == {f"<b>{row}</b>" for row in np.flatnonzero(before != now)}
        assert live(page, "enter") == str(int((now & ~before).sum()))


def listed(page):
    """All pages of the list."""
    ids = set()
    while True:
        ids |= set(page.locator("[data-test=people] tbody th").all_text_contents())
        if page.locator("[data-test=next]").is_disabled():
            return ids
        page.locator("[data-test=next]").click()


def test_charts_follow_the_slider(page, data):
    charts = page.locator(".chart")
    before = [charts.nth(i).inner_html() for i in range(charts.count())]
    assert len(before) == 6
    assert all("<svg" in chart for chart in before)
    move_to(page, len(data.steps) - 1)
    page.wait_for_timeout(300)
    after = [charts.nth(i).inner_html() for i in range(charts.count())]
    assert all(now != was for now, was in zip(after, before, strict=True))


def test_keyboard_and_buttons_move_the_slider(page, data):
    slider = page.locator("[data-test=slider]")
    slider.focus()
    page.keyboard.press("ArrowRight")
    right = words.scientific(data.steps[data.chosen + 1].alpha)
    assert live(page, "alpha") == right
    assert right in slider.get_attribute("aria-valuetext")
    page.locator("[data-test=none]").click()
    assert (live(page, "alpha"), slider.input_value()) == ("0", "0")
    page.locator("[data-test=chosen]").click()
    assert live(page, "setting") == "chosen setting"
    summary = words.step_words(data, data.chosen)["summary"]
    page.wait_for_timeout(300)
    assert page.locator("[data-test=summary]").text_content() == summary


def test_clicking_a_curve_goes_there_each_time(page):
    chart = page.locator("#chart-f1 svg")
    box = chart.bounding_box()
    for _ in range(2):
        chart.click(position={"x": 0.9 * box["width"], "y": 0.4 * box["height"]})
        page.wait_for_function("Number(document.getElementById('alpha').value) > 30", timeout=5_000)
        move_to(page, 0)


def test_list_is_searched_and_filtered(page, data):
    last = len(data.steps) - 1
    moves = data.steps[last].moves
    move_to(page, last)
    page.locator("[data-test=direction]").select_option("leave")
    assert len(listed(page)) == moves.leave[0]
    page.locator("[data-test=direction]").select_option("all")
    wanted = data.people[moves.listed[0]].id
    page.locator("[data-test=find]").fill(f">{wanted}<")
    assert listed(page) == {f"<b>{wanted}</b>"}
    page.locator("[data-test=find]").fill("no such person")
    assert "Nobody listed" in page.locator("[data-test=people-status]").text_content()


def test_dark_follows_the_system_and_the_button_but_print_is_light(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(ground)
    assert dark != light
    page.locator("[data-test=theme]").click()
    assert page.evaluate(ground) == light
    page.locator("[data-test=theme]").click()
    assert page.evaluate(ground) == dark
    assert page.locator("[data-test=theme]").get_attribute("aria-pressed") == "true"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    page.emulate_media(media="screen", color_scheme="light")


def test_phone_needs_no_sideways_scrolling(page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390", timeout=5_000)
    assert page.locator("[data-test=slider]").is_visible()


def test_page_without_scripts_shows_the_chosen_setting(browser, address, data):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("noscript table").is_visible()
    assert page.locator("h1").text_content() == "<i>T</i>"
    assert live(page, "ratio") == words.ratio_text(data.steps[data.chosen].score.flags.ratio)
    context.close()


@pytest.mark.filterwarnings("ignore::evenout.exceptions.SmallGroupWarning")
def test_page_with_nobody_to_compare_draws_what_there_is(browser, make, tmp_path):
    case = make(sizes=(300, 20), alpha=None)
    path = write_report(case.model, tmp_path / "r.html", X=case.X, sensitive_features=case.sensitive)
    page, complaints = browser.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=20_000)
    assert page.locator("#chart-spread svg").is_visible()
    assert page.locator("#chart-bias svg").count() == 0
    assert complaints == []
    page.close()
