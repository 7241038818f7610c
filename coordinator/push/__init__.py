"""Members for workers that listen: this side connects to them, and is a member for each.

`messages`, `address` and `lease` are pure. `Push` runs all; a worker sees only HTTP and JSON.
"""
