"""`muster demo`: the main job on real input, and a group served to members of its own.

No other room may depend on it.
"""
