"""Availability: `python -m benchmarks --only availability`."""
