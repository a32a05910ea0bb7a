"""Reading single numbers out of a usage object that somebody else wrote."""

from collections.abc import Mapping

from cost_model.errors import UsageError

MOST_TOKENS = 10**9
"""No call has a billion tokens: a larger number is damage, and its dollars would not fit the columns they go into."""


def shown(value: object) -> str:
    """The beginning of a value that is not what it should be; Python writes out no number of thousands of digits."""
    try:
        return repr(str(value)[:40])
    except ValueError:
        return "a number of thousands of digits"


class UsageFields:
    """One usage object (or an object inside it), read field by field. Every complaint keeps the whole raw object."""

    __slots__ = ("_path", "_raw", "_whole")

    def __init__(self, raw: Mapping[str, object], whole: Mapping[str, object] | None = None, path: str = "") -> None:
        self._raw = raw
        self._whole = raw if whole is None else whole
        self._path = path

    @property
    def raw(self) -> Mapping[str, object]:
        return self._raw

    def count(self, name: str) -> int | None:
        """The tokens in a field; None when it is absent or null, which means "not told", not zero."""
        value = self._raw.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TOKENS:
            expected = f"a whole number of tokens from 0 to {MOST_TOKENS:,}"
            raise self.error(f"{self._path}{name} must be {expected}, not {shown(value)}")
        return value

    def needed(self, name: str) -> int:
        value = self.count(name)
        if value is None:
            raise self.error(f"{self._path}{name} is missing")
        return value

    def inside(self, name: str) -> "UsageFields":
        """The fields of a nested object; empty when it is absent or null. Raises UsageError for anything else."""
        value = self._raw.get(name)
        if value is None:
            value = {}
        # Almost all are plain dicts, and asking an abstract class takes ten times as long.
        elif type(value) is not dict and not isinstance(value, Mapping):
            raise self.error(f"{self._path}{name} must be an object, not {type(value).__name__}")
        return UsageFields(value, self._whole, f"{self._path}{name}.")

    def error(self, message: str) -> UsageError:
        return UsageError(f"usage: {message}", self._whole)
