"""The commands that may start Spark: assign, sql, conf.

They parse options, call one function of another room, and print. Importing one starts no JVM.
"""
