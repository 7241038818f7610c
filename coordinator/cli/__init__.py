"""The commands of `muster`, a file each; `main` finds them by their entry points.

They parse options, call one function of another room, and print. Importing one starts no JVM.
"""
