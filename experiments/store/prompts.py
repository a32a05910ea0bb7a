"""What was sent with each call, out of the rows of `messages`: a block is stored once, and again where it was altered.

A version of a lane begins with the first block that its rewriting stored; what lies before is that of the version
below.
"""

from collections.abc import Mapping, Sequence

from cost_model.prompt import PromptBlock, Rewritten
from experiments.store.rows import Row, whole


class Prompts:
    """The blocks of one attempt's lanes. `messages` are rows with lane, version, idx, hash and size."""

    def __init__(self, messages: Sequence[Row]) -> None:
        lanes: dict[object, dict[int, dict[int, PromptBlock]]] = {}
        for row in messages:
            version, index = whole(row["version"]), whole(row["idx"])
            block = PromptBlock(str(row["hash"]), whole(row["size"]))
            lanes.setdefault(row["lane"], {}).setdefault(version, {}).setdefault(index, block)
        self._known: Mapping[tuple[object, object], Sequence[PromptBlock]] = {
            (lane, version): blocks for lane, stored in lanes.items() for version, blocks in _versions(stored)
        }

    def of(self, lane: object, version: object) -> Sequence[PromptBlock]:
        """All blocks of a version in order, up to the first that was not stored. Calls send ranges of this one list,
        never copies."""
        return self._known.get((lane, version), ())


def _versions(stored: Mapping[int, Mapping[int, PromptBlock]]) -> list[tuple[int, Sequence[PromptBlock]]]:
    found: list[tuple[int, Sequence[PromptBlock]]] = []
    before: Sequence[PromptBlock] = ()
    for version, blocks in sorted(stored.items()):
        first = min(blocks)
        if first <= len(before):
            own: list[PromptBlock] = []
            while first + len(own) in blocks:
                own.append(blocks[first + len(own)])
            before = Rewritten(before, first, own) if first else own
        # Else blocks are missing between: no more of it is known than of the version below.
        found.append((version, before))
    return found
