"""Assign tables once, without a coordinator and without a JVM: what `muster assign` does.

A job names its tables, how to assign them, and where the result goes. Inputs are pinned, options
are checked once, the output is replaced in one commit. Spark is one more engine, given from
outside: nothing here imports it.
"""
