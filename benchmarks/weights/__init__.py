"""Weighted groups that Spark cuts."""
