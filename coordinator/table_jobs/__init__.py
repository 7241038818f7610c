"""Assign tables once, without a coordinator and without a JVM; `muster assign`.

A job names its input tables, how to assign them, and where to write the result. Inputs are pinned
to a version, options are checked once, and the output is replaced in one commit. Spark is another
engine, passed as an argument: this room must not import it.
"""
