"""The next plan from the last one: a change costs what it moves, not the size of the group.

See docs/design/algorithm.md#the-next-plan.
"""
