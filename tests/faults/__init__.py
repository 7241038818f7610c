"""Faults of real processes and disks, and what a coordinator comes to by them (`make faults`).

Coordinators run in processes of their own and are killed, stopped and woken; their disks fill up
and their files are cut. What members were answered is kept here, outside, and compared.
"""
