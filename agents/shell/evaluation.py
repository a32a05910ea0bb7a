"""Where bash takes text for an expression: in arithmetic, in subscripts, in offsets, in a name that is looked up.

A variable that is named there is evaluated, and what its value holds runs: x='a[$(rm f)]'; echo $((x)).
"""

import re

_NUMBER = r"(?:\d+|\$[#?]|\$\{#\w+(?:\[[@*]\])?\})"
_EXPANSION = re.compile(r"\$\{#?(?:\w+|[@*#?$!-])(?:\[(?:-?\d+|[@*])\])?(?P<rest>[-:#%/^,@=+?].*)?\}", re.DOTALL)
_NAMES = re.compile(r"\$\{![A-Za-z_]\w*\[[@*]\]\}")
_OFFSETS = re.compile(r":\s*-?\d+(?::\s*-?\d+)?")
_SUBSCRIPT = re.compile(r"\w+\[(?:-?\d+|[@*])?\]")
_COMPARED = re.compile(r"(?<![^\s(])\d+\s+-(?:eq|ne|lt|le|gt|ge)\s+\d+(?=[\s)])|-v\s+[A-Za-z_]\w*(?=[\s)])")
_COMPARES = re.compile(r"-(?:eq|ne|lt|le|gt|ge|v|R)(?!\w)")
_KEYED = re.compile(r"[(\s]\[")
_FIXED = re.compile(r"[\d\s+\-*/%()<>=!&|^~?:,;]*")


def evaluates(kind: str, text: str) -> bool:
    """Whether a node of the parser's tree may evaluate a variable's value: what is more than numbers and operators."""
    if kind == "arithmetic_expansion":
        inner = text[3:-2] if text.startswith("$((") else text[2:-1]
        return not _is_fixed(inner)
    if text.startswith("((") and kind in ("compound_statement", "test_command"):
        return not _is_fixed(text[2:-2])
    if kind == "test_command":
        return text.startswith("[[") and _COMPARES.search(_COMPARED.sub("", text)) is not None
    if kind == "expansion":
        found = _EXPANSION.fullmatch(text)
        if found is None:
            return _NAMES.fullmatch(text) is None
        rest = found["rest"] or ""
        return rest[:1] == ":" and rest[1:2] not in tuple("-=?+") and _OFFSETS.fullmatch(rest) is None
    if kind == "subscript":
        return _SUBSCRIPT.fullmatch(text) is None
    return kind == "c_style_for_statement" or (kind == "array" and _KEYED.search(text) is not None)


def _is_fixed(text: str) -> bool:
    return _FIXED.fullmatch(re.sub(rf"(?<![\w$]){_NUMBER}(?![\w$\[])", "0", text)) is not None


def hides(kind: str, text: str) -> bool:
    """Whether quotes in it may mean something else to bash than to the parser: there, some are characters like others,
    and a substitution within them runs."""
    return kind in ("expansion", "arithmetic_expansion", "subscript") and ("'" in text or "`" in text)
