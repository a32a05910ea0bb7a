"""The exceptions of this room.

ExperimentError
├── SpecError              a spec file is wrong: one line naming file, field and how to mend it
├── BillError              a bill's file cannot be read as one: one line naming file, place and how to mend it
├── ModelUnusable          a model that is checked gives no answer: one line with what a person must mend
├── PlanChanged            a stored trial was planned differently; names what changed
└── StoreError             the database cannot do what was asked; the message says how to mend it
    ├── StoreMissing       there is no database file at this path
    ├── StoreNewer         the file was written by a newer version of this program
    ├── StoreLocked        another process holds the file and did not let go in time
    ├── JournalDamaged     a journal holds what cannot be read or booked (a torn LAST line is normal, no damage)
    ├── JournalFull        the journal could not be written: disk full or a quota
    ├── SettlementRefused  a bill contradicts what an earlier one has settled
    ├── SnapshotRefused    something else stands where a copy should
    ├── UnknownExperiment  no experiment of this name is stored
    └── QueryError         a SQL statement failed; one line
"""


class ExperimentError(Exception):
    """Base of everything this room raises on purpose; a user's mistake ends in its one line."""


class SpecError(ExperimentError):
    """A spec file does not say what it must."""


class BillError(ExperimentError):
    """A file is no bill that can be read, or says what no bill can."""


class ModelUnusable(ExperimentError):
    """A model gives no answer to a check."""


class PlanChanged(ExperimentError):
    """A known experiment would now be run differently from what is stored."""


class StoreError(ExperimentError):
    """The database cannot do what was asked."""


class StoreMissing(StoreError):
    """No database file at this path."""


class StoreNewer(StoreError):
    """The schema is newer than this program."""


class StoreLocked(StoreError):
    """Another process holds the file."""


class JournalDamaged(StoreError):
    """A line of a segment is no event, or an attempt's events cannot be booked."""


class JournalFull(StoreError):
    """A journal record could not be written to disk."""


class SettlementRefused(StoreError):
    """A bill says something else of a call than the bill that settled it."""


class SnapshotRefused(StoreError):
    """A copy would take the place of something that is none."""


class UnknownExperiment(StoreError):
    """No such experiment in this database."""


class QueryError(StoreError):
    """A SQL statement failed."""
