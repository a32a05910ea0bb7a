"""What this machine has of what runs need: each thing looked at on its own, and told in one line with the mend."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agents.model_entry import ModelEntry

Standing = Literal["ok", "note", "off"]


@dataclass(frozen=True, slots=True)
class Line:
    """`what` was looked at, `told` what was found, with the mend where there is one to make.

    `off`: runs fail, or go wrong, as it is. `note`: some runs need more than there is.
    """

    standing: Standing
    what: str
    told: str


async def examine(models: "Mapping[str, ModelEntry]", database: Path, *, offline: bool) -> AsyncIterator[Line]:
    """The lines in the order in which a reader wants them. `offline`: no model's address is asked.

    Sends nothing that costs anything, and no key.
    """
    from experiments.doctor.disk import disks
    from experiments.doctor.keys import keys
    from experiments.doctor.names import names
    from experiments.doctor.reach import reached
    from experiments.doctor.sandboxes import sandboxes

    for line in names():
        yield line
    async for line in sandboxes():
        yield line
    for line in disks(database):
        yield line
    for line in keys(models):
        yield line
    async for line in reached(models, offline=offline):
        yield line
