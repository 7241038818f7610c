"""Jobs around the assignors: read a group, assign, check, and commit the result with its run."""
