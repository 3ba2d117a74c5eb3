"""Parts beside those of the shap library, where it is installed: it is no dependency."""

import numpy as np
import pytest

shap = pytest.importorskip("shap")


@pytest.mark.filterwarnings("ignore")
def test_parts_are_those_of_shap_against_the_same_row(model, new):
    found = model.explain(new[:4], baseline="typical")
    explainer = shap.explainers.Exact(
        lambda rows: model.outlier_scores(
            new.iloc[:1].reindex(range(len(rows))).assign(**dict(zip(new, rows.T, strict=True)))
        ),
        shap.maskers.Independent(model._result.background.typical[None]),
    )
    np.testing.assert_allclose(found.fair_parts, explainer(new[:4].to_numpy()).values, atol=1e-6)
