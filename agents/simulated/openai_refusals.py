"""Refusals in OpenAI's words, which its two protocols share."""

from agents.simulated.errors import Refused


def missing(name: str) -> Refused:
    return Refused(f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")


def unknown(path: str) -> Refused:
    return Refused(f"Unknown parameter: '{path}'.", param=path, code="unknown_parameter")


def unsupported(name: str, why: str) -> Refused:
    return Refused(f"Unsupported parameter: '{name}' is not supported {why}.", param=name, code="unsupported_parameter")


def moved(name: str, to: str) -> Refused:
    return Refused(
        f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{to}'. Try again with "
        "the new parameter.",
        param=name,
        code="unsupported_parameter",
    )


def not_on_this_model(name: str) -> Refused:
    return Refused(f"{name} is not supported on this model", param=name, code="invalid_parameter")


def wrong_type(name: str, expected: str) -> Refused:
    return Refused(f"Invalid type for '{name}': expected {expected}.", param=name, code="invalid_type")


def wrong_value(name: str, value: object, *supported: str) -> Refused:
    words = [f"'{word}'" for word in supported]
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return Refused(
        f"Invalid value: '{str(value)[:100]}'. Supported values are: {listed}.", param=name, code="invalid_value"
    )
