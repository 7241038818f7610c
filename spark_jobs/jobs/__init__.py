"""Jobs around the assignors: read a group, assign, check, and commit the result with its run.

They assign nothing themselves; only a coordinator writes the log of a store.
"""
