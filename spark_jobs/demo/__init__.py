"""`muster demo`: Kafka's recorded groups, a small group of Kafka clients, and a very large group.

No other room may import it.
"""
