"""Members for workers that listen: this side connects to them, and is a member for each.

`messages` and `address` are pure. `Push` runs all of them; a worker sees only HTTP and JSON.
"""
