"""The transactions in a partition's log: see `coordinator/core/transactions.py`.

`spans` is what of a log its readers may see, `load` what a log says of producers.
"""
