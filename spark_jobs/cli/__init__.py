"""The commands that may start Spark: assign, sql, conf.

A command parses options, calls one function of another room, and prints. Importing it must not
start a JVM.
"""
