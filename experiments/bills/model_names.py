"""One model under many names: what was asked for, what answered, what a bill calls it."""

import re
from collections.abc import Iterable, Sequence

from experiments.bills.ledger_call import LedgerCall

_DATED = re.compile(r"^(.*?)[-@](\d{8}|\d{4}-\d{2}-\d{2})$")


def parts(name: str) -> tuple[str, str | None]:
    """The name without a router's prefix, as a slug, and the date that it ends with (digits only)."""
    slug = re.sub(r"[\s._]+", "-", name.strip().lower().rpartition("/")[2])
    found = _DATED.match(slug)
    return (slug, None) if found is None else (found[1], found[2].replace("-", ""))


class ModelNames:
    """The models of the ledger's calls. Names that were asked for and answered in one call are one model's."""

    def __init__(self, calls: Iterable[LedgerCall]) -> None:
        self._parent: dict[str, str] = {}
        registry: dict[str, set[str]] = {}
        for call in calls:
            self._join(call.wire_model, call.response_model or call.wire_model)
            registry.setdefault(call.model, set()).add(call.wire_model)
        self._registry = {
            name: roots.pop() for name, wires in registry.items() if len(roots := {self._root(w) for w in wires}) == 1
        }
        self._by_slug: dict[str, dict[str, set[str]]] = {}
        for name in self._parent:
            slug, date = parts(name)
            dates = self._by_slug.setdefault(slug, {}).setdefault(self._root(name), set())
            if date is not None:
                dates.add(date)

    def of_call(self, call: LedgerCall) -> str:
        return self._root(call.wire_model)

    def find(self, names: Sequence[str]) -> str | None:
        """The ledger's model that a bill calls by these names; None for one that it does not know.

        An exact name counts first, then the registry's, then one that differs by its date or a router's prefix only:
        two dates that differ are two models.
        """
        for name in names:
            if name in self._parent:
                return self._root(name)
        for name in names:
            if name in self._registry:
                return self._registry[name]
        for name in names:
            slug, date = parts(name)
            fitting = [
                root
                for root, dates in self._by_slug.get(slug, {}).items()
                if date is None or not dates or date in dates
            ]
            if len(fitting) == 1:
                return fitting[0]
        return None

    def _root(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def _join(self, asked: str, answered: str) -> None:
        for name in (asked, answered):
            self._parent.setdefault(name, name)
        one, other = self._root(asked), self._root(answered)
        if one != other:
            # The shorter name is the one that people know.
            first, second = sorted((one, other), key=lambda name: (len(name), name))
            self._parent[second] = first
