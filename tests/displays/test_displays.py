import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from evenout import FairOutlierEnsemble, metrics
from evenout.displays import GroupScoresDisplay, TradeoffDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    groups = rng.choice(["a", "b", "c"], 200)
    S = rng.random((200, 5)) + 0.3 * rng.random(5) * (groups == "a")[:, None]
    model = FairOutlierEnsemble("precomputed", combination="average", bias_reduction=0.5, judged_on="training")
    return model.fit(S, sensitive_features=groups)


def test_tradeoff_display_draws_the_path(model):
    display = TradeoffDisplay.from_estimator(model)
    table = model.path_.table()
    for target in ("unseen", "training"):
        x, y = display.lines_[target].get_data()
        np.testing.assert_array_equal(x, table["f1"])
        np.testing.assert_array_equal(y, table[f"bias_{target}"])
        assert display.base_bias[target] == model.path_.target_bias(target)
    corners = display.band_.get_datalim(display.ax_.transData)
    assert (corners.y0, corners.y1) == pytest.approx((table["low_unseen"].min(), table["high_unseen"].max()))
    assert display.chosen["alpha"] == model.alpha_
    assert display.figure_ is display.ax_.figure
    assert "f1" in display.ax_.get_xlabel()
    shown = [text.get_text() for text in display.ax_.texts]
    assert shown == [f"alpha = {model.alpha_:.3g}"]


def test_tradeoff_display_takes_alphas_axes_and_style(model):
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    display = TradeoffDisplay.from_estimator(model, alphas=np.array([10.0, 0.0, 1.0]), ax=ax, color="red")
    assert display.ax_ is ax
    assert display.table["alpha"].tolist() == [0.0, 1.0, 10.0]
    assert display.lines_["unseen"].get_color() == "red"
    again = display.plot()
    assert again is display
    assert display.ax_ is not ax


def test_tradeoff_display_needs_a_fitted_model():
    with pytest.raises(NotFittedError):
        TradeoffDisplay.from_estimator(FairOutlierEnsemble())


def test_group_scores_display_shows_shares_above_and_flag_rates():
    scores = np.array([1.0, 2.0, 3.0, 4.0, 3.0, 5.0])
    groups = ["a", "a", "a", "a", "b", "b"]
    display = GroupScoresDisplay.from_scores(scores, sensitive_features=groups, contamination=1 / 3)
    assert display.flag_rates_ == metrics.flag_rates(scores, sensitive_features=groups, contamination=1 / 3)
    x, share = display.lines_["a"].get_data()
    assert x.tolist() == [1, 1, 2, 3, 4, 5]
    assert share.tolist() == [0.75, 0.75, 0.5, 0.25, 0, 0]
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["threshold: 33.3% of all flagged", "a: 25.0% of 4", "b: 50.0% of 2"]
    dots = [line for line in display.ax_.lines if line.get_marker() == "o"]
    assert [dot.get_ydata()[0] for dot in dots] == [0.25, 0.5]


def test_group_scores_display_takes_a_count_of_rows():
    display = GroupScoresDisplay.from_scores(np.arange(40.0), sensitive_features=["a", "b"] * 20, contamination=10)
    assert display.flag_rates_ == {"a": 0.25, "b": 0.25}
    assert display.ax_.get_legend().get_texts()[0].get_text() == "threshold: 10 of 40 flagged"


def test_group_scores_display_thins_long_curves_without_moving_them():
    rng = np.random.default_rng(0)
    scores, groups = rng.normal(size=20_000), rng.integers(0, 2, 20_000)
    display = GroupScoresDisplay.from_scores(scores, sensitive_features=groups)
    x, share = display.lines_["1"].get_data()
    assert len(x) <= 2002
    of_group = scores[groups == 1]
    np.testing.assert_allclose(share[::100], [(of_group > value).mean() for value in x[::100]])


def test_group_scores_display_tells_many_groups_apart():
    scores = np.arange(60.0)
    display = GroupScoresDisplay.from_scores(scores, sensitive_features=np.arange(60) % 10)
    styles = {(line.get_color(), line.get_linestyle()) for line in display.lines_.values()}
    assert len(styles) == 10


@pytest.mark.parametrize(
    ("scores", "more", "message"),
    [
        ([0.1, np.nan], {}, "scores must be finite numbers"),
        ([[0.1], [0.2]], {}, r"got shape \(2, 1\)"),
        ([0.1, 0.2, 0.3, 0.4], {"contamination": 0.9}, "contamination=0.9 is not allowed"),
    ],
)
def test_group_scores_display_refuses_bad_input(scores, more, message):
    with pytest.raises(ValueError, match=message):
        GroupScoresDisplay.from_scores(scores, sensitive_features=["a", "b"] * (len(scores) // 2), **more)
