from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from agents.errors import RegistryError
from agents.model_entry import ModelEntry
from agents.registry import find_model, load_models
from agents.simulated.persona import load_personas
from cost_model.errors import PriceMissing
from cost_model.policies import POLICIES, charged_classes
from cost_model.prices import PriceBook
from cost_model.public_prices import find_public
from cost_model.tokens import Tokens

FINE = """
models:
  mine:
    provider: example
    protocol: openai_chat
    model: m-1
    base_url: https://api.example.com/v1/
    key_variable: EXAMPLE_KEY
    price: gpt-6.1-sol
    cache: none
    limits: {max_output_tokens: 1000, context_tokens: 8000}
"""


def load(tmp_path: Path, text: str) -> None:
    (tmp_path / "models.yaml").write_text(text)
    load_models([tmp_path / "models.yaml"])


def test_the_shipped_models_are_there_and_say_whether_they_are_simulated() -> None:
    models = load_models()
    assert {name for name, model in models.items() if model.simulated} == {n for n in models if n.startswith("sim-")}
    assert {"sim-claude-opus-5-5", "sim-deepseek-v4-flash", "sim-gpt-6.1-sol"} <= models.keys()
    assert models["local"].self_hosted
    assert models["deepseek-v4-flash"].output_limit_parameter == "max_tokens"
    assert models["kimi-k3"].output_limit_parameter == models["gpt-6.1-sol-chat"].output_limit_parameter
    assert models["kimi-k3"].output_limit_parameter == "max_completion_tokens"


def test_a_simulated_model_is_registered_as_its_persona_behaves() -> None:
    simulated = {name: model for name, model in load_models().items() if model.simulated}
    personas = load_personas()
    assert simulated.keys() == personas.keys()
    for name, model in simulated.items():
        assert model.model == name
        assert (model.protocol, model.cache) == (personas[name].protocol, personas[name].cache)


def test_every_provider_that_it_promises_has_a_model() -> None:
    providers = {model.provider for model in load_models().values()}
    assert providers == {
        "simulated", "anthropic", "openai", "deepseek", "google", "qwen", "zai", "moonshotai", "mistral", "xai",
        "openrouter", "local",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "protocol", "asked", "key"),
    [
        ("claude-opus-5-5", "anthropic_messages", "marks", False),
        ("gpt-6.1-sol", "openai_responses", "breakpoints", True),
        ("gpt-6.1-sol-chat", "openai_chat", "breakpoints", True),
        ("gpt-5.5", "openai_responses", "retention", True),
        ("deepseek-v4-flash", "openai_chat", "automatic", False),
        ("qwen3.8-max", "openai_chat", "automatic", False),
        ("qwen3.8-max-marks", "openai_chat", "marks", False),
        ("kimi-k3", "openai_chat", "options", False),
        ("mistral-large-4", "openai_chat", "automatic", True),
        ("grok-4.7", "openai_responses", "automatic", True),
        ("openrouter-sonnet-5.5", "openai_chat", "marks", False),
        ("local", "openai_chat", "automatic", False),
    ],
)
def test_a_cache_is_asked_for_as_the_provider_wants_it(model: str, protocol: str, asked: str, key: bool) -> None:
    entry = load_models()[model]
    assert (entry.protocol, entry.cache_request, entry.sends_cache_key) == (protocol, asked, key)


def test_models_that_refuse_a_temperature_or_tools_say_so() -> None:
    models = load_models()
    assert not models["claude-opus-4-7"].temperature
    assert models["claude-haiku-4-5"].temperature
    assert models["claude-haiku-4-5"].efforts == ()
    assert "none" not in models["gpt-6.1-sol"].efforts
    assert "none" in models["gpt-5.6-sol"].efforts
    # OpenAI's chat completions refuse tools for its newer models.
    chat = [model for model in models.values() if model.provider == "openai" and model.protocol == "openai_chat"]
    assert chat
    assert all(model.actions == "json_schema" for model in chat)


def test_a_file_of_the_user_adds_models_and_replaces_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FINE)
    (tmp_path / "b.yaml").write_text(FINE.replace("mine:", "local:"))
    models = load_models([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert models["mine"].base_url == "https://api.example.com/v1"
    assert not models["local"].self_hosted
    assert len(models) == len(load_models()) + 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("price:", "prize:"), "models.mine.prize: unknown field, did you mean price?"),
        (("    price: gpt-6.1-sol\n", ""), "models.mine: give either `price`"),
        (("price: gpt-6.1-sol", "price: x\n    self_hosted: true"), "models.mine: give either `price`"),
        (("openai_chat", "openai"), "models.mine.protocol: Input should be 'anthropic_messages', 'openai_chat' or 'op"),
        (
            ("    cache: none", "    cache: none\n    efforts: [low, LOW]"),
            "models.mine.efforts: expected words such as",
        ),
        (("    cache: none", "    cache: none\n    efforts: [low, low]"), "each once, not 'low'"),
        (
            ("    cache: none", "    cache: none\n    actions: json"),
            "models.mine.actions: Input should be 'tools', 'json_",
        ),
        (("    cache: none", "    cache: none\n    caching: marks"), "models.mine: `caching: marks` asks for a cache"),
        (
            ("openai_chat", "anthropic_messages\n    caching: breakpoints"),
            "models.mine: anthropic_messages has no `caching: breakpoints`; it has automatic, marks",
        ),
        (
            ("openai_chat", "openai_responses\n    caching: marks"),
            "models.mine: openai_responses has no `caching: marks`; it has automatic, breakpoints, options, retention",
        ),
        (
            ("    cache: none", "    cache: none\n    extra_body: {seed: 1, messages: []}"),
            "models.mine.extra_body: 'messages' is not for an entry to set",
        ),
        *(
            (("    cache: none", f"    cache: none\n    extra_body: {{seed: 1, {name}: null}}"), told)
            for name, told in [
                ("max_tokens", "models.mine.extra_body: 'max_tokens' is not for an entry to set: an answer's length"),
                (
                    "max_completion_tokens",
                    "'max_completion_tokens' is not for an entry to set: an answer's length is b",
                ),
                (
                    "max_output_tokens",
                    "is not for an entry to set: an answer's length is bounded by `limits.max_output",
                ),
                ("best_of", "'best_of' is not for an entry to set: it changes what a call costs"),
                ("service_tier", "'service_tier' is not for an entry to set: it changes what a call costs"),
                ("speed", "'speed' is not for an entry to set: it changes what a call costs"),
                ("inference_geo", "'inference_geo' is not for an entry to set: it changes what a call costs"),
                ("prompt_cache_retention", "is not for an entry to set: `caching` of the entry and `lifetime` of a"),
                ("previous_response_id", "is not for an entry to set: it lets the provider bill what no request"),
                ("models", "'models' is not for an entry to set: it lets the provider bill what no request and no pr"),
            ]
        ),
        (
            ("    cache: none", "    cache: none\n    extra_body: {'n': 8}"),
            "extra_body: 'n' is not for an entry to set",
        ),
        (
            ("    cache: none", "    cache: none\n    extra_body: {at: 2026-01-01}"),
            "models.mine.extra_body: input was not",
        ),
        (
            ("    cache: none", "    cache: none\n    headers: {Authorization: Bearer x}"),
            "models.mine.headers: 'Authorization' is not for an entry to set: the key comes from `key_variable`",
        ),
        (
            ("    cache: none", '    cache: none\n    headers: {X-A: "a\\nb"}'),
            "models.mine.headers: 'X-A' is no header",
        ),
        (
            ("    cache: none", "    cache: none\n    headers: {X-A: 3}"),
            "models.mine.headers.X-A: Input should be a valid",
        ),
        (
            ("    cache: none", "    cache: none\n    like: gpt-5.6"),
            "models.mine.like: unknown model 'gpt-5.6'; did you",
        ),
        (
            ("    base_url: https://api.example.com/v1/\n", ""),
            "models.mine.base_url: is missing; add it, or name a `provider` whose defaults have it (provider 'example'",
        ),
        (
            ("    key_variable: EXAMPLE_KEY\n", "    like: gpt-5.5\n"),
            "models.mine.key_variable: is missing: OPENAI_API_KEY would be sent to 'https://api.example.com/v1/'; name",
        ),
        (("models:", "providers: {mine: {modl: 3}}\nmodels:"), "providers.mine.modl: unknown field, did you mean mod"),
        (("models:", "providers: {mine: {model: 3}}\nmodels:"), "providers.mine.model: belongs to a model"),
        (("models:", "providers: [mine]\nmodels:"), "providers: expected fields under each provider's name"),
        (("https://api", "api"), "models.mine.base_url: expected an http(s) address"),
        (("cache: none", "cache: nome"), "models.mine.cache: unknown cache policy 'nome'; there are anthropic-1024"),
        (("max_output_tokens: 1000", "max_output_tokens: -1"), "models.mine.limits.max_output_tokens: "),
        (("    model: m-1\n", ""), "models.mine.model: is missing; add it"),
        (("  mine:", "  mine: 3\n  other:"), "models.mine: expected fields"),
        (("models:", "model:"), "expected `models:` with an entry under each model's name"),
        (("provider:", "provider: ["), "line 5: no valid YAML"),
        (("    cache: none", "    cache: none\n    cache: none"), "'cache' stands twice"),
        (
            ("    cache: none", "    ? [a]\n    : b\n    cache: none"),
            "line 10: no valid YAML: a key must be",
        ),
        (("max_output_tokens: 1000", "max_output_tokens: 2026-13-01"), "models.mine.limits.max_output_tokens: Input"),
        (("cache: none", "cache: 2026-13-01"), "models.mine.cache: unknown cache policy '2026-13-01'; there are"),
        (("cache: none", f"cache: {'[' * 1500}{']' * 1500}"), "nested too deep; give each model its fields"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_file_and_field(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    assert change[0] in FINE
    with pytest.raises(RegistryError) as caught:
        load(tmp_path, FINE.replace(*change))
    message = str(caught.value)
    assert told in message
    assert message.startswith(str(tmp_path / "models.yaml"))
    assert "\n" not in message


def load_one(tmp_path: Path, text: str, name: str = "mine") -> ModelEntry:
    (tmp_path / "models.yaml").write_text(text)
    return load_models([tmp_path / "models.yaml"])[name]


def test_provider_and_model_are_enough_where_the_model_is_known(tmp_path: Path) -> None:
    mine = load_one(tmp_path, "models: {mine: {provider: openai, model: gpt-5.5}}")
    assert mine == load_models()["gpt-5.5"].model_copy(update={"name": "mine"})


def test_of_an_unknown_model_a_known_provider_says_where_it_answers_and_whose_price_counts(tmp_path: Path) -> None:
    mine = load_one(tmp_path, "models: {mine: {provider: openrouter, model: acme/anvil-1}}")
    assert (mine.base_url, mine.key_variable) == ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY")
    assert (mine.protocol, mine.price) == ("openai_chat", "openrouter:acme/anvil-1")


def test_the_protocol_decides_between_two_entries_of_a_model(tmp_path: Path) -> None:
    mine = load_one(tmp_path, "models: {mine: {provider: openai, model: gpt-6.1-sol, protocol: openai_chat}}")
    assert (mine.cache, mine.actions) == ("openai-30m-chat", "json_schema")


GATEWAY = """
models:
  house-gpt:
    {like: gpt-5.5, base_url: https://llm.example.com/v1,
    key_variable: HOUSE_KEY,
    price: house-gpt}
"""


def test_a_gateway_with_its_own_price_card_takes_three_lines(tmp_path: Path) -> None:
    house = load_one(tmp_path, GATEWAY, "house-gpt")
    known = load_models()["gpt-5.5"]
    assert {name for name in ModelEntry.model_fields if getattr(house, name) != getattr(known, name)} == {
        "name", "base_url", "key_variable", "price",
    }  # fmt: skip
    (tmp_path / "prices.toml").write_text(
        '[[price]]\nmodel = "house-gpt"\nsource = "our contract"\n'
        "usd_per_mtok = { input = 3.5, cache_read = 0.35, output = 21 }\n"
    )
    card = PriceBook([tmp_path / "prices.toml"]).card(house.price or "", datetime.now(UTC))
    assert card.lacking(charged_classes(POLICIES[house.cache])) == ()
    assert card.cost(Tokens(input=10**6)) == Decimal("3.5")
    with pytest.raises(PriceMissing, match="house-gpt"):
        PriceBook().card(house.price or "", datetime.now(UTC))


def test_a_key_goes_to_another_address_only_when_the_entry_says_so(tmp_path: Path) -> None:
    elsewhere = "models: {mine: {like: gpt-5.5, base_url: https://llm.example.com/v1, key_variable: KEY}}"
    assert load_one(tmp_path, elsewhere.replace("KEY", "null")).key_variable is None
    assert load_one(tmp_path, elsewhere.replace("KEY", "OPENAI_API_KEY")).key_variable == "OPENAI_API_KEY"
    home = "models: {mine: {like: gpt-5.5, base_url: 'https://api.openai.com/v1/'}}"
    assert load_one(tmp_path, home).key_variable == "OPENAI_API_KEY"
    provider = "providers: {house: {base_url: 'https://a.example', key_variable: HOUSE_KEY}}\n"
    with pytest.raises(RegistryError, match=r"HOUSE_KEY would be sent to 'https://b\.example'"):
        load_one(tmp_path, provider + "models: {mine: {like: gpt-5.5, provider: house, base_url: 'https://b.example'}}")


def test_a_free_twin_of_a_priced_model_loses_the_price_and_the_other_way_round(tmp_path: Path) -> None:
    free = load_one(tmp_path, "models: {mine: {like: glm-5.3, self_hosted: true}}")
    assert (free.price, free.self_hosted) == (None, True)
    priced = load_one(tmp_path, "models: {mine: {like: local, price: gpt-5.5}}")
    assert (priced.price, priced.self_hosted) == ("gpt-5.5", False)


def test_a_users_provider_serves_the_entries_of_later_files(tmp_path: Path) -> None:
    (tmp_path / "house.yaml").write_text(
        "providers:\n  house: {base_url: 'https://a.example/v1', key_variable: HOUSE, price: 'house:{model}',"
        " protocol: openai_chat, cache: none, limits: {max_output_tokens: 9, context_tokens: 99}}\nmodels: {}\n"
    )
    (tmp_path / "mine.yaml").write_text("models: {mine: {provider: house, model: m-1}}")
    mine = load_models([tmp_path / "house.yaml", tmp_path / "mine.yaml"])["mine"]
    assert (mine.base_url, mine.price, mine.limits.context_tokens) == ("https://a.example/v1", "house:m-1", 99)


NOW = datetime.now(UTC)
BOOK = PriceBook()


@pytest.mark.parametrize("name", [name for name, model in load_models().items() if not model.self_hosted])
def test_every_shipped_model_has_a_price_for_all_that_its_cache_may_bill(name: str) -> None:
    model = load_models()[name]
    card = BOOK.card(model.price or "", NOW)
    assert card.lacking(charged_classes(POLICIES[model.cache])) == ()
    assert all(card.usd_per_mtok[each] > 0 for each in charged_classes(POLICIES[model.cache]))
    read, plain = card.usd_per_mtok.get("cache_read", Decimal(0)), card.usd_per_mtok["input"]
    assert read < plain < card.usd_per_mtok["output"]
    assert 1000 <= model.limits.max_output_tokens < model.limits.context_tokens


@pytest.mark.parametrize("ref", sorted({model.price or "" for model in load_models().values()} - {""}))
def test_our_own_prices_agree_with_the_public_list_where_both_know_one(ref: str) -> None:
    noon = datetime(2026, 11, 24, 12, tzinfo=UTC)
    ours, public = BOOK.card(ref, noon), find_public(ref)
    if public is None:
        assert ref.startswith("qwen")
        return
    theirs = public.card(noon, None, None)
    both = ours.usd_per_mtok.keys() & theirs.usd_per_mtok.keys()
    assert {"input", "output"} <= both
    assert {each: ours.usd_per_mtok[each] for each in both} == {each: theirs.usd_per_mtok[each] for each in both}
    for tokens in (50_000, 150_000, 250_000, 300_000):
        assert {each: ours.price(each, tokens) for each in both} == {each: theirs.price(each, tokens) for each in both}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"gone\.yaml: no such models file; give the path of one"):
        load_models([tmp_path / "gone.yaml"])


def test_a_file_without_end_is_not_read_to_it() -> None:
    with pytest.raises(RegistryError, match=r"^/dev/zero: longer than 1,000,000 bytes; a models file is a short YAML"):
        load_models([Path("/dev/zero")])


def test_what_a_file_would_hold_is_bounded_like_the_file(tmp_path: Path) -> None:
    path, long = tmp_path / "models.yaml", FINE + "#" * 1_000_000
    with pytest.raises(RegistryError, match=r"models\.yaml: longer than 1,000,000 bytes"):
        load_models(draft=(path, long))
    assert "mine" in load_models(draft=(path, long[:1_000_000]))


def test_a_name_that_no_file_can_have_and_characters_that_no_yaml_has_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"cannot be read: embedded null byte$"):
        load_models([tmp_path / "a\0b"])
    with pytest.raises(
        RegistryError, match=r"no valid YAML: unacceptable character #x0000: .*position 0; mend that line$"
    ):
        load(tmp_path, "\0")


def test_an_unknown_model_is_answered_with_near_names() -> None:
    with pytest.raises(RegistryError, match="did you mean claude-opus-5-5"):
        find_model(load_models(), "claude-opus-5.5")
    with pytest.raises(RegistryError, match="unknown model 'zzz': `fullchain models list` names all"):
        find_model(load_models(), "zzz")
