"""Soft groups: every sum and every formula against a literal loop, every claim against a population."""

import numpy as np
import pytest
from tests.conftest import probable, side_by_side

from evenout.core.cells import CrossFit, collect_cells, variances
from evenout.core.membership import Block, Comparison, Membership
from evenout.core.parity import mean_covariances
from evenout.core.registry import PARITY
from evenout.core.ruler import wald_test

RNG = np.random.default_rng(0)
N, K = 120, 4
S = RNG.random((N, 3))
T = S.mean(axis=1) + 0.1 * RNG.random(N)
AGE = np.where(np.arange(N) % 17 == 0, np.nan, RNG.normal(40, 12, N))
SEX = RNG.integers(-1, 2, N)
STRATA = RNG.integers(0, 3, N)
SURE = RNG.dirichlet(np.ones(3), N)
BANDS = Membership.of_bands(AGE, np.array([20.0, 35.0, 40.0, 60.0]))
KINDS = {
    "hard": Membership.of_codes(SEX, 2),
    "bands": BANDS,
    "probable": probable(SURE),
    "strata": Membership.of_codes(SEX, 2).within(STRATA),
    "bands in strata": BANDS.within(STRATA),
    "two attributes": side_by_side([Membership.of_codes(SEX, 2), BANDS], [0.5, 0.5]),
}
WEIGHT, CLUSTERS = RNG.random(N) + 0.5, RNG.integers(0, 50, N)


@pytest.fixture(params=KINDS)
def members(request):
    return KINDS[request.param]


def cells_of(members, **more):
    sets = np.zeros(N, dtype=int)
    return collect_cells(S, T, np.ones(N), members, sets, n_groups=members.n_groups, n_sets=1, **more)


def literal_weights(members, size):
    """Weight of each pair of groups, block by block."""
    pairs, total = {}, sum(block.weight for block in members.compared.blocks)
    for block in members.compared.blocks:
        own = [(g, h) for g in block.groups for h in block.groups if g < h]
        rows = sum(size[g] for g in block.groups)
        for g, h in own:
            part = size[g] * size[h] / rows**2 if block.by_size else 1 / len(own)
            pairs[g, h] = block.weight / total * part
    return pairs


def test_bands_are_hats_that_sum_to_one():
    phi, known = BANDS.weights.toarray(), ~np.isnan(AGE)
    np.testing.assert_allclose(phi.sum(axis=1), known)
    young, middle = np.nanargmin(AGE), np.nanargmin(np.abs(AGE - 37.0))
    assert phi[young].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert phi[middle] == pytest.approx([0.0, (40 - AGE[middle]) / 5, (AGE[middle] - 35) / 5, 0.0])


def test_rows_are_of_the_group_they_belong_to_most(members):
    phi = members.weights.toarray()
    expected = np.where(phi.max(axis=1) > 0, phi.argmax(axis=1), -1)
    np.testing.assert_array_equal(members.codes, expected)


@pytest.mark.parametrize("more", [{}, {"sample_weight": WEIGHT, "clusters": CLUSTERS}])
def test_form_and_noise_are_the_literal_sums_over_comparisons(members, more):
    """``sum w (m_g - m_h)^2``, and its noise from the rows' own part in the difference of two means."""
    phi, cells, v = members.weights.toarray(), cells_of(members, **more), np.array([0.3, -1.0, 0.4, 1.0])
    w, clusters = more.get("sample_weight", np.ones(N)), more.get("clusters", np.arange(N))
    y = np.column_stack([S, T]) @ v
    size, worth = w @ phi, cells.effective_counts[0]
    mean = (w * y) @ phi / size
    factor = np.sqrt(worth / (worth - 1))
    form = noise = 0.0
    for (g, h), weight in literal_weights(members, size).items():
        form += weight * (mean[g] - mean[h]) ** 2
        part = {i: w * phi[:, i] * (y - mean[i]) / size[i] * factor[i] for i in (g, h)}
        one, two = (np.bincount(clusters, part[i]) for i in (g, h))
        shared = (g, h) in members.compared.overlaps  # what clusters alone join is taken as independent
        noise += weight * ((one**2).sum() + (two**2).sum() - 2.0 * shared * (one @ two))
    assert v @ PARITY.form(cells)[0] @ v == pytest.approx(form, rel=1e-10)
    assert v @ PARITY.noise(cells)[0] @ v == pytest.approx(noise, rel=1e-10)
    assert variances(cells, v[None, None])[0, 0] == pytest.approx(np.average((y - w @ y / w.sum()) ** 2, weights=w))


def test_chunks_and_folds_add_up(members):
    sets = np.arange(N) % K
    args = {"n_groups": members.n_groups, "n_sets": K}
    cells = collect_cells(S, T, np.ones(N), members, sets, **args)
    halves = np.arange(N) < 50, np.arange(N) >= 50
    one, two = (
        collect_cells(S[h], T[h], np.ones(h.sum()), members.among(np.flatnonzero(h)), sets[h], **args) for h in halves
    )
    cross = CrossFit.of_folds(one + two)
    for name in ("plain", "weighted", "joint_spread"):
        np.testing.assert_allclose(getattr(one + two, name), getattr(cells, name), rtol=1e-10, atol=1e-12)
        whole = getattr(cells_of(members), name)
        np.testing.assert_allclose(getattr(cross.whole, name), whole, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(getattr(cells - two, name), getattr(one, name), rtol=1e-8, atol=1e-10)


def test_a_hard_group_by_probabilities_is_the_hard_group():
    hard, soft = Membership.of_codes(SEX, 2), probable(np.eye(3)[SEX][:, :2])
    unit = np.ones((K, 1, 4)) * np.array([0.1, 0.2, -0.5, 1.0])
    found = []
    for members in (hard, soft):
        cells = collect_cells(S, T, np.ones(N), members, np.arange(N) % K, n_groups=2, n_sets=K)
        cross = CrossFit.of_folds(cells)
        parts = PARITY.bias(cross, unit), PARITY.covariance(cross, unit).ravel(), PARITY.target_bias(cross)
        found.append(np.concatenate([*parts, [PARITY.gap_p_value(cross.whole)]]))
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_wald_is_welch_where_groups_are_hard():
    compared = Comparison(3, (Block((0, 1, 2)),), overlaps=((0, 1), (1, 2), (0, 2)))  # no row is shared all the same
    mean, own, size = (
        np.array([0.1, 0.25, 0.2]),
        np.array([0.002, 0.004, 0.001]),
        np.array([20.0, 35.0, 80.0]),
    )
    arguments = np.ones(3, dtype=bool), mean
    welch = wald_test(Comparison.of_all(3), *arguments, np.diag(own), size, 1.0)
    cov = np.diag(own) + 1e-14 * (1 - np.eye(3))
    assert wald_test(compared, *arguments, cov, size, 1.0) == pytest.approx(welch, rel=1e-9)
    assert 0.001 < welch < 0.5


def drawn(gap, rng, n=400):
    """Rows whose score rises with age by ``gap`` standard deviations over its range, and sex that goes with age."""
    age = rng.random(n)
    sex = (rng.random(n) < 0.3 + 0.4 * age).astype(int)
    t = gap * age + rng.normal(size=n)
    bands = Membership.of_bands(age, np.linspace(0, 1, 4))
    return side_by_side([Membership.of_codes(sex, 2), bands], [0.5, 0.5]), t


@pytest.mark.slow
def test_overlapping_groups_without_a_gap_are_found_to_have_none():
    rng, p, bias = np.random.default_rng(1), [], []
    for _ in range(400):
        members, t = drawn(0.0, rng, 150)
        cells = collect_cells(t[:, None], t, np.ones(150), members, np.arange(150) % 5, n_groups=6, n_sets=5)
        cross = CrossFit.of_folds(cells)
        p.append(PARITY.gap_p_value(cross.whole))
        bias.append(PARITY.target_bias(cross)[0])
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.085
    assert abs(np.mean(bias)) < 3 * np.std(bias) / 20


@pytest.mark.long
@pytest.mark.slow
def test_bias_of_overlapping_groups_and_its_error_are_right_in_a_population():
    rng = np.random.default_rng(2)
    members, t = drawn(1.0, rng, 400_000)
    phi = members.weights.toarray()
    size, mean = phi.sum(axis=0), t @ phi / phi.sum(axis=0)
    pairs = literal_weights(members, size)
    truth = sum(weight * (mean[g] - mean[h]) ** 2 for (g, h), weight in pairs.items()) / t.var()
    bias, error = [], []
    for _ in range(300):
        members, t = drawn(1.0, rng)
        cells = collect_cells(t[:, None], t, np.ones(400), members, np.arange(400) % 5, n_groups=6, n_sets=5)
        cross = CrossFit.of_folds(cells)
        bias.append(PARITY.target_bias(cross)[0])
        error.append(np.sqrt(PARITY.covariance(cross, np.zeros((5, 0, 2)))[-1, -1]))
    assert abs(np.mean(bias) - truth) < 3 * np.std(bias) / np.sqrt(300)
    assert 0.85 < np.mean(error) / np.std(bias) < 1.15


def test_covariance_of_overlapping_means_is_that_of_repeated_draws():
    rng, means, stated = np.random.default_rng(3), [], []
    for _ in range(600):
        members, t = drawn(0.5, rng, 200)
        cells = collect_cells(t[:, None], t, np.ones(200), members, np.zeros(200, dtype=int), n_groups=6, n_sets=1)
        means.append(cells.plain[0, :-1, 0, -1] / cells.group_counts[0])
        V = np.zeros((6, 6))
        V[members.compared.joint] = mean_covariances(cells)[0, :, -1, -1]
        stated.append(V)
    real, stated = np.cov(np.array(means).T), np.mean(stated, axis=0)
    scale = np.sqrt(np.outer(np.diag(real), np.diag(real)))
    assert np.abs((real - stated) / scale).max() < 0.17
    assert (real / scale)[0, 2] > 0.15  # groups that share rows go together
