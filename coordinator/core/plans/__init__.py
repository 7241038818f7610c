"""Weights, constraints and plans of a group, as records and assignors have them."""
