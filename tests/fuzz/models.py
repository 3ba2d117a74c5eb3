"""Write the models of the corpus anew, after the format has changed: ``python tests/fuzz/models.py``."""

import warnings
from pathlib import Path

import pandas as pd
from sklearn.pipeline import Pipeline

from evenout import FairOutlierEnsemble, Groups
from evenout.persistence import save_model
from evenout.storage.archive import read_plain, write_plain
from evenout.tables.encoder import TableEncoder

CORPUS = Path(__file__).parent / "corpus"
SCORES = ["income", "debt", "risk"]


def write():
    people = pd.read_csv(CORPUS / "people.csv")
    groups = people["sex"]
    quick = {"detectors": "precomputed", "groups": Groups(min_size=2), "alpha": 2.0, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = FairOutlierEnsemble(**quick).fit(people[SCORES], sensitive_features=groups)
        steps = {}
        for name, columns, settings in (
            ("precomputed", SCORES, quick),
            (
                "diverse",
                ["home", *SCORES],
                {"detectors": "diverse", "fairness": "individual", "scaling": "rank", "combination": "greedy"}
                | {"alpha": 2.0, "random_state": 0},
            ),
        ):
            table = TableEncoder(keep=columns).set_output(transform="default").fit(people[columns])
            ensemble = FairOutlierEnsemble(**settings).fit(table.transform(people), sensitive_features=groups)
            steps[name] = Pipeline([("table", table), ("ensemble", ensemble)])
    save_model(plain, CORPUS / "model-without-encoder.skops")
    save_model(steps["precomputed"], CORPUS / "model-precomputed.skops", updatable=True)
    save_model(steps["diverse"], CORPUS / "model-diverse.skops")
    data = read_plain(CORPUS / "model-without-encoder.skops")
    data["ensemble"]["result"]["choice"]["alpha"] = 10**400
    write_plain(data, CORPUS / "wrong-model-alpha-of-400-digits.skops")


if __name__ == "__main__":
    write()
