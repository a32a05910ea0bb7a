"""Real usage objects with their bills (tests/cost_vectors), and the price file that each vector's prices make."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "cost_vectors" / "usage_costs.json").read_text(encoding="utf-8"), parse_float=Decimal
)["vectors"]

_CLASSES = {
    "input": "input",
    "cache_read": "cache_read",
    "write": "cache_write_unknown",
    "write_5m": "cache_write_5m",
    "write_30m": "cache_write_30m",
    "write_1h": "cache_write_1h",
    "write_12h": "cache_write_12h",
    "output": "output",
    "reasoning_subset": "reasoning",
}


def document(vector: dict[str, Any]) -> Any:
    """What a person has of the call: a usage object, a response, or a list of events."""
    return next(vector[key] for key in ("usage", "response", "events") if key in vector)


def document_text(vector: dict[str, Any]) -> str:
    """The same as JSON, every fraction digit for digit as it came."""

    def whole(value: Any) -> Any:
        return float(value) if isinstance(value, Decimal) else value

    return json.dumps(document(vector), default=whole)


def models(vector: dict[str, Any]) -> tuple[str, str | None]:
    """The call's own model, and an advisor's."""
    own, _, advisor = vector["model"].partition(" + ")
    return own, advisor or None


def expected_tokens(vector: dict[str, Any]) -> dict[str, int]:
    """Tokens of the call's own model, by the names of this project."""
    return {_CLASSES[name]: count for name, count in vector["expected_tokens"].items() if name in _CLASSES}


def wrong_answers(vector: dict[str, Any]) -> list[Decimal]:
    return [Decimal(text.split()[0]) for text in vector.get("known_wrong_usd", [])]


def price_file(vector: dict[str, Any], path: Path) -> Path:
    """The vector's prices hold as they stand: for its tier, its speed and the length of its prompt."""
    own, advisor = models(vector)
    prices = vector["prices_usd_per_mtok"]
    entries = []
    for model, of in ((own, lambda name: name in _CLASSES), (advisor, lambda name: name.startswith("advisor_"))):
        priced = {_CLASSES[name.removeprefix("advisor_")]: usd for name, usd in prices.items() if of(name)}
        if model and any(Decimal(usd) for usd in priced.values()):
            table = ", ".join(f"{name} = {usd}" for name, usd in priced.items())
            entries.append(f'[[price]]\nmodel = "{model}"\nsource = "vector"\nusd_per_mtok = {{ {table} }}')
            if model == own and "storage_mtok_hour" in prices:
                entries[-1] += f"\nstorage_mtok_hour = {prices['storage_mtok_hour']}"
    usage = vector.get("response", vector.get("usage", {}))
    for field in ("service_tier", "inference_geo"):
        if field in usage:
            entries.append(
                f'[[modifier]]\nmodels = ["{own}"]\n{field} = "{usage[field]}"\nsource = "vector"\n'
                f"times = {vector.get('multiplier', 1)}"
            )
    path.write_text("\n\n".join(entries), encoding="utf-8")
    return path
