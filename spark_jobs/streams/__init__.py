"""Kafka topics in Spark's streams: offsets in groups, and topics that several drivers share.

Nothing here needs a coordinator of Muster's: groups may be those of any Kafka.
"""
