.PHONY: check lint types test fast docs nightly

# The rooms whose tests are small: what they leave out starts processes, or draws from populations.
FAST = core inputs metrics storage tools detectors persistence reasons repair

check: lint types test

lint:
	ruff format --check .
	ruff check .

types:
	mypy

test:
	pytest

fast:
	pytest -n auto -q -m "not long and not slow" $(addprefix tests/,$(FAST))

docs:
	sphinx-build -W --keep-going -b html docs docs/_build/html

# What `.ci/run` takes a sample of, in full: some hours.
nightly:
	pytest -n auto -m long
	EVENOUT_DEEP=1 pytest -n auto -m "" tests/properties tests/core/test_population.py
	python tests/mutation/run.py
	.ci/oldest
	for seed in 1 2 3; do EVENOUT_SHUFFLE=$$seed pytest || exit 1; done
