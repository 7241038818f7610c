"""A member of a group: it joins, owns partitions, works on them, and gives them up in time.

`membership` is pure: events in, actions out. `Member` performs the actions.
"""
