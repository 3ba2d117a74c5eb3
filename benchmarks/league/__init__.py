"""The league of fair detectors: every method is fitted on one half of a table and judged on the other, many times.

    python -m benchmarks.league --jobs 2 --out league.json     # every table, every method: under an hour on two cores
    python -m benchmarks.league --quick                        # small halves, few of them: under five minutes
    python -m benchmarks.league my.csv --sensitive sex --label fraud
    python -m benchmarks.league --table league.json --into docs/league.md --csv docs/_static

A method is one file in ``methods/`` with a ``METHOD`` (`league.contract`). ``docs/league.md`` says how results are
measured and compared.
"""
