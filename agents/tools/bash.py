"""The `bash` tool: what the model is told of it, and what it reads of a command's output."""

from agents.arguments import text_form
from agents.tools import Tool
from agents.wire_text import wire_text
from harbor_tasks.sandbox import KEPT_MOST, OUTPUT_LIMIT, Output

BASH = Tool(
    name="bash",
    description=(
        "Runs a command in bash inside the task's machine and returns its exit code and output (stdout and stderr "
        "together). The working directory and exported variables last from call to call; functions and unexported "
        "variables do not. Commands get no input and must not wait for any. Long output is cut in the middle."
    ),
    arguments=text_form("command", "The command line or script to run."),
)

HEAD, TAIL = 8_000, 2_000
"""Characters of a command's output that the model reads."""


def bash_result(output: Output, timeout_s: float) -> str:
    """`exit code N`, then the output: at most `HEAD` + `TAIL` characters of it, every gap marked, and where the whole
    is kept when there is one."""
    text = wire_text(output.text)
    cut = len(text) > HEAD + TAIL
    if cut:
        left_out = len(text) - HEAD - TAIL
        text = f"{text[:HEAD]}\n[... {left_out} characters left out ...]\n{text[-TAIL:]}"
    notes = ""
    if cut and output.kept is not None:
        whole = "the whole output is" if output.size <= KEPT_MOST else f"its first {KEPT_MOST} bytes are"
        notes += f"\n[the output had {output.size} bytes; {whole} in {output.kept}]"
    elif output.size > OUTPUT_LIMIT:
        notes += f"\n[the output had {output.size} bytes; what came after the first {OUTPUT_LIMIT} is lost]"
    if output.timed_out:
        notes += f"\n[stopped after {timeout_s:g} s]"
    return f"exit code {output.exit_code}\n{text}{notes}"
