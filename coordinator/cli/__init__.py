"""The commands of `muster`, one file each; `main` finds them by their entry points.

A command parses options, calls one function of another room, and prints. Importing it must not
start a JVM.
"""
