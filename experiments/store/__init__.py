"""What happened, kept: an append-only journal takes every event at once, one DuckDB file answers the questions.

journal       the segment file of one run: durable records, group commit
trial         the events of one attempt of a trial, as agents book them
segment       a segment file, read again
rows          what a row is
attempts      events of one attempt -> rows
ledger        calls -> costs and charges, from events or from stored rows; cards are the prices they were booked with
store         the owner of the database file: register, merge, recover, rebuild
recording     what a run holds while it runs: a journal, and a merge every few seconds
reader        questions, also while a run writes
migrations    the schema, in numbered steps; views.sql has every figure that is shown
"""
