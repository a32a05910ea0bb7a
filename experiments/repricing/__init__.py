"""Stored calls at other prices: arithmetic on their raw usage. Nothing is replayed and nothing is stored.

`repricing.reprice` is the whole; `batch` prices some trials: most calls quickly and together (`quick`), the rest one by
one (`single`). What comes out is what booking the same calls afresh at these prices would store.
"""
