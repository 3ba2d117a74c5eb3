.PHONY: check lint types test

check: lint types test

lint:
	ruff format --check .
	ruff check .

types:
	mypy

test:
	pytest
