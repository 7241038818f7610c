"""Benchmarks: time and memory of assignors and the coordinator, and how long ranges stay.

`make bench` runs all of them and writes docs/design/benchmarks.md; `python -m benchmarks --help`
explains how to run some. A section is a module with a function `run(bench) -> Section`, and an
entry in `SECTIONS` in `__main__.py`. Wheels do not contain this package.
"""
