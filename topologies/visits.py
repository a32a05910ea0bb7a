"""Which roles a node visits, as far as its source tells: it names them as `roles["worker"]`."""

import ast
import functools
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph.graph import StateGraph


def visits(graph: "StateGraph[Any, Any, Any, Any]", node: str) -> list[tuple[str, int]]:
    """Role and line, in the order of the source; none where a node's role is computed or it has no source."""
    runnable = graph.nodes[node].runnable
    function = getattr(runnable, "afunc", None) or getattr(runnable, "func", None)
    while isinstance(function, functools.partial):
        function = function.func
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(function))  # type: ignore[arg-type]  # None: a TypeError
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, ValueError, SyntaxError):
        return []
    found = [
        (step.slice.value, first + step.lineno - 1)
        for step in ast.walk(tree)
        if isinstance(step, ast.Subscript)
        and isinstance(step.slice, ast.Constant)
        and isinstance(step.slice.value, str)
        and _is_roles(step.value)
    ]
    return sorted(found, key=lambda visit: visit[1])


def _is_roles(value: ast.expr) -> bool:
    return (isinstance(value, ast.Attribute) and value.attr == "roles") or (
        isinstance(value, ast.Name) and value.id == "roles"
    )
