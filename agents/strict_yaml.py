"""YAML that people write, read so that nothing in it is lost without a word."""

from collections.abc import Hashable
from typing import Any

import yaml

from agents.errors import RegistryError


def read_yaml(source: str, written: str) -> object:
    """The document. Raises RegistryError, one line with the source and, where it is known, the line."""
    try:
        # A SafeLoader that only refuses more.
        return yaml.load(written, Loader=_StrictLoader)  # noqa: S506
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" line {mark.line + 1}:"
        raise RegistryError(f"{source}:{where} no valid YAML: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise RegistryError(f"{source}: nested too deep; give each model its fields under `models:`") from None
    except (ValueError, OverflowError) as error:
        raise RegistryError(f"{source}: no valid YAML: {error}; write that character itself") from None


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice: the first entry would be lost without a word.

    What looks like a date or a number and is none stays text, so that its field refuses it by name.
    """

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError:
            if not isinstance(node, yaml.ScalarNode):
                raise
            self.recursive_objects.pop(node, None)
            return node.value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain name", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)
