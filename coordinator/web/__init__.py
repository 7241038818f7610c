"""A live page of groups, their history and their reasons, over a store.

Pages read the store's log and nothing else, so they need no coordinator, and no page waits for one.
Names of members, clients and topics are hostile input: templates escape them all. Only this room
imports Starlette and uvicorn, which `muster[web]` installs.
"""
