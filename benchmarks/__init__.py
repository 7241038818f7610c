"""Benchmarks: how long assigning takes, how much memory, and how long ranges stay.

`make bench` runs all of them and writes docs/design/benchmarks.md; `python -m benchmarks --help`
says how to run a part. A section is one module with a function `run(bench) -> Section`; a new one
is added to `SECTIONS` in `__main__.py`. Nothing here is shipped.
"""
