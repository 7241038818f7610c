"""The HTTP API, served where the pages are: what `coordinator.api` declares, answered from a store.

It has the logins and access lists of the pages, and reads through the same looks.
"""
