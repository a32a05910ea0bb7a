"""A reviewer's verdict: approve or reject, how sure it is, and what it found, where."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agents.handover import HandoverForm

MOST_FINDINGS = 50


class Finding(BaseModel):
    """One thing that is wrong, and in which file and line where that can be said."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    file: Annotated[str, Field(strict=True, max_length=500, description="The file's path, as the diff names it.")]
    line: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=10_000_000)] | None,
        Field(description="The line's number in the file as it is now; null when it is about the whole file."),
    ] = None
    problem: Annotated[
        str, Field(strict=True, max_length=4000, description="What is wrong there, and what would be right.")
    ]

    @property
    def told(self) -> str:
        return f"{self.file}{'' if self.line is None else f':{self.line}'}: {self.problem}"


class Verdict(HandoverForm):
    """Rejected work goes back to the role that the tool names; approved work to nobody: it is handed in."""

    verdict: Annotated[
        Literal["approve", "reject"], Field(description="approve hands the work in, reject sends it back.")
    ]
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, description="How sure you are of the verdict.")]
    findings: Annotated[
        list[Finding],
        Field(max_length=MOST_FINDINGS, description="What is wrong, the worst first; an empty list when nothing is."),
    ]

    def told(self) -> str:
        what = "approves" if self.verdict == "approve" else "rejects"
        head = f"The reviewer {what} the work (confidence {self.confidence:.2f})."
        if not self.findings:
            return head if self.verdict == "approve" else f"{head} It names no finding."
        return "\n".join([f"{head} Findings:", *(f"{n}. {each.told}" for n, each in enumerate(self.findings, 1))])

    def receiver(self, to_role: str | None) -> str | None:
        return to_role if self.verdict == "reject" else None
