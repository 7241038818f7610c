"""Jobs around the assignors: read a group, assign, check, and commit the result with its run id.

A job contains no assignor, and must not write the log of a store: only a coordinator does.
"""
