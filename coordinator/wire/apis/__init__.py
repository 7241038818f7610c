"""Kafka's APIs: from a decoded request to events, and from their answers to a response.

Without I/O and without a clock; `codec` reads and writes the bytes.
"""
