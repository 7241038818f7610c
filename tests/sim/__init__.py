"""A seeded simulation of coordinators, their members, their network, clocks and log (`make sim`).

It drives the real `EventProcessor` over a real log; everything around it is simulated, and breaks as the
seed says. One seed is one run, the same in every process; `checkers` says what must always hold.
"""
