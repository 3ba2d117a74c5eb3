.PHONY: check lint types test docs

check: lint types test

lint:
	ruff format --check .
	ruff check .

types:
	mypy

test:
	pytest

docs:
	sphinx-build -W --keep-going -b html docs docs/_build/html
