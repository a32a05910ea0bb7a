"""fullchain usage --calls: what each call of a log cost and why, without running anything."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cost_model.usage.report import Question


def print_calls(text: str, source: str, question: "Question", cache: str | None) -> None:
    """Prints JSON. Raises DocumentError, UsageError and PriceMissing, each naming file and line."""
    import json

    from cost_model.call_file.report import report_calls
    from cost_model.call_file.scope import price_calls, read_call_lines
    from cost_model.errors import DocumentError, PriceMissing, UsageError
    from experiments.cli.terminal import output

    try:
        lines, repeated = read_call_lines(text)
        told = report_calls(price_calls(lines, repeated, question, cache))
    except DocumentError as error:
        raise DocumentError(f"{source}: {error}") from None
    except UsageError as error:
        raise UsageError(f"{source}: {error}", error.raw) from None
    except PriceMissing as error:
        raise PriceMissing(f"{source}: {error}") from None
    # JSON escapes every control character but this one, and a terminal is not to be steered.
    output().write(json.dumps(told, indent=1).replace("\x7f", "\\u007f") + "\n")
