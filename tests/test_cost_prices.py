"""Which prices hold when, and what happens where none is known."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.errors import PriceFileError, PriceMissing
from cost_model.policies import POLICIES, charged_classes
from cost_model.price_card import PRICE_DECIMALS, SELF_HOSTED, PriceCard, PriceTier
from cost_model.prices import PriceBook
from cost_model.tokens import CLASSES, Tokens
from experiments.cli import main

DAY = datetime(2026, 11, 24, 12, tzinfo=UTC)
BOOK = PriceBook()

LIST_PRICES = {
    # model: input, cache_read, default write, long write, output
    "claude-opus-5-5": ("4", ".2", "5", "8", "20"),
    "claude-opus-4-5": ("5", ".5", "6.25", "10", "25"),
    "claude-opus-4-8": ("5", ".5", "6.25", "10", "25"),
    "claude-opus-5": ("5", ".5", "6.25", "10", "25"),
    "claude-sonnet-5-5": ("2", ".1", "2.5", "4", "10"),
    "claude-sonnet-4-6": ("3", ".3", "3.75", "6", "15"),
    "claude-haiku-4-5": ("1", ".1", "1.25", "2", "5"),
    "gpt-6.1-sol": ("2", ".1", "2.5", "5", "10"),
    "gpt-5.6-sol": ("4", ".4", "5", "10", "20"),
    "gpt-6.1-terra": ("1", ".05", "1.25", "2.5", "5"),
    "gpt-5.5": ("5", ".5", None, None, "30"),
    "gpt-5": ("1.25", ".125", None, None, "10"),
    "deepseek-v4-flash": (".15", ".003", None, None, ".6"),
    "deepseek-v4-pro": (".66", ".022", None, None, "1.98"),
    "gemini-3.8-flash": (".75", ".075", None, None, "3.75"),
    "kimi-k3": ("3", ".3", "3", "6", "15"),
    "glm-5.3": ("1.4", ".26", None, None, "4.4"),
}


@pytest.mark.parametrize("ref", LIST_PRICES)
def test_a_listed_model_has_the_prices_of_its_provider(ref: str) -> None:
    plain, read, write, long_write, output = LIST_PRICES[ref]
    short, long = ("cache_write_30m", "cache_write_12h") if "gpt" in ref else ("cache_write_5m", "cache_write_1h")
    expected = {"input": plain, "cache_read": read, short: write, long: long_write, "output": output}
    card = BOOK.card(ref, DAY)
    for token_class, price in expected.items():
        if price is None:
            with pytest.raises(PriceMissing, match=token_class):
                card.price(token_class, 1000)
        else:
            assert card.price(token_class, 1000) == Decimal(price)


@pytest.mark.parametrize(
    ("at", "dollars"),
    [
        ("2026-11-24T00:59:59", ".15"),  # a Tuesday
        ("2026-11-24T01:00:00", ".3"),
        ("2026-11-24T03:59:59", ".3"),
        ("2026-11-24T04:00:00", ".15"),
        ("2026-11-24T06:00:00", ".3"),
        ("2026-11-24T10:00:00", ".15"),
        ("2026-11-22T02:00:00", ".15"),  # a Sunday
        ("2026-08-24T02:00:00", ".44"),
        ("2026-08-24T12:00:00", ".22"),
        ("2026-08-12T02:00:00", ".14"),
    ],
)
def test_deepseek_costs_double_in_peak_hours_of_working_days(at: str, dollars: str) -> None:
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
    assert BOOK.card("deepseek-v4-flash", moment).price("input", 10) == Decimal(dollars)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 60 * 24 * 400), min_size=1, max_size=12))
def test_the_order_of_questions_does_not_matter_and_a_card_covers_its_moment(minutes: list[int]) -> None:
    moments = [datetime(2026, 6, 1, tzinfo=UTC) + timedelta(minutes=minute) for minute in minutes]
    forwards, backwards = PriceBook(), PriceBook()
    cards = [forwards.card("deepseek-v4-flash", at) for at in moments]
    for at, card in zip(moments, cards, strict=True):
        assert card.valid_from is None or card.valid_from <= at
        assert card.valid_until is None or at < card.valid_until
    assert [backwards.card("deepseek-v4-flash", at) for at in reversed(moments)] == cards[::-1]


def test_a_card_is_worked_out_once_a_window() -> None:
    book = PriceBook()
    assert book.card("claude-opus-5-5", DAY) is book.card("claude-opus-5-5", DAY + timedelta(hours=5))


def test_every_listed_price_is_a_whole_number_of_the_smallest_unit() -> None:
    card = BOOK.card("openrouter:~google/gemini-flash-latest", DAY)
    for price in card.usd_per_mtok.values():
        assert price == round(price, PRICE_DECIMALS)


def test_a_dated_price_changes_on_its_day() -> None:
    before = BOOK.card("gpt-5.6-sol", datetime(2026, 8, 20, 23, 59, tzinfo=UTC))
    after = BOOK.card("gpt-5.6-sol", datetime(2026, 8, 21, tzinfo=UTC))
    assert (before.price("input", 10), after.price("input", 10)) == (Decimal(5), Decimal(4))
    assert before.valid_until == after.valid_from == datetime(2026, 8, 21, tzinfo=UTC)


def test_a_long_prompt_reprices_the_whole_call() -> None:
    card = BOOK.card("gpt-5.5", DAY)
    assert card.cost(Tokens(input=22_000, cache_read=250_000, output=2000)) == Decimal("0.295")
    assert card.cost(Tokens(input=50_000, cache_read=250_000, output=2000)) == Decimal("0.84")


def test_a_class_that_a_tier_does_not_name_keeps_the_price_below() -> None:
    tiers = (
        PriceTier(100, {"input": Decimal(2), "output": Decimal(9)}),
        PriceTier(200, {"input": Decimal(3)}),
    )
    card = PriceCard("m", "s", None, None, {"input": Decimal(1), "output": Decimal(5)}, tiers)
    assert [card.price("input", n) for n in (100, 101, 201)] == [1, 2, 3]
    assert [card.price("output", n) for n in (100, 101, 201)] == [5, 9, 9]


@pytest.mark.parametrize("ref", ["no-such-model", "claude-opus-9", "sim-claude-opus-5-5", "openai:no-such-model"])
def test_an_unknown_model_is_an_error_that_says_how_to_mend_it(ref: str) -> None:
    with pytest.raises(PriceMissing) as missing:
        BOOK.card(ref, DAY)
    message = str(missing.value)
    assert ref in message
    assert "[[price]]" in message
    assert "self_hosted: true" in message
    assert "\n" not in message


def test_a_listed_model_with_an_empty_price_is_an_error_not_free() -> None:
    with pytest.raises(PriceMissing, match="no price by the token"):
        BOOK.card("azure:mai-ds-r1:free", DAY)


def test_a_model_that_is_also_billed_by_other_units_is_refused() -> None:
    with pytest.raises(PriceMissing, match="also bills"):
        BOOK.card("perplexity:sonar-deep-research", DAY)


def test_a_class_without_a_price_is_an_error_not_free() -> None:
    card = BOOK.card("deepseek-v4-flash", DAY)
    with pytest.raises(PriceMissing, match="cache_write_1h"):
        card.cost(Tokens(input=1, cache_write_1h=1))
    assert card.lacking(charged_classes(POLICIES["anthropic-1024"])) == ("cache_write_5m", "cache_write_1h")
    assert card.lacking(charged_classes(POLICIES["deepseek"])) == ()


@given(st.lists(st.integers(0, 10**9), min_size=len(CLASSES), max_size=len(CLASSES)))
def test_what_is_declared_self_hosted_costs_nothing(counts: list[int]) -> None:
    assert SELF_HOSTED.cost(Tokens(**dict(zip(CLASSES, counts, strict=True)))) == 0


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_an_own_price_wins_over_the_list_and_a_later_file_over_an_earlier(tmp_path: Path) -> None:
    first = write(
        tmp_path / "a.toml",
        '[[price]]\nmodel = "gpt-5"\nsource = "contract"\nvalid_from = 2026-11-01\n'
        "usd_per_mtok = { input = 0.7, output = 3 }\n",
    )
    second = write(
        tmp_path / "b.toml",
        '[[price]]\nmodel = "gpt-5"\nsource = "contract 2"\nvalid_from = 2026-11-10T08:00:00+02:00\n'
        "valid_until = 2026-12-01\nusd_per_mtok = { input = 0.1, output = 2 }\n",
    )
    book = PriceBook([first, second])
    days = ("2026-10-31", "2026-11-05", "2026-11-10T05:59", "2026-11-10T06:00", "2026-12-01")
    cards = [book.card("gpt-5", datetime.fromisoformat(day).replace(tzinfo=UTC)) for day in days]
    assert [card.price("input", 9) for card in cards] == [Decimal(p) for p in ("1.25", "0.7", "0.7", "0.1", "0.7")]
    assert cards[0].valid_until == datetime(2026, 11, 1, tzinfo=UTC)


RULE = '[[modifier]]\nmodels = ["m*"]\nservice_tier = "batch"\nsource = "s"\ntimes = 0.5\n'
GOOD = '[[price]]\nmodel = "m"\nsource = "s"\nusd_per_mtok = { input = 1, output = 2 }\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[price]\n", "is not valid TOML"),
        ("[[price]]\nmodel = \n", "(Invalid value (at line 2, column 9)); mend that line"),
        (GOOD + "tiers = [", "(Invalid value (at line 5, the end of the file)); mend that line"),
        (GOOD + f"tiers = {'9' * 5000}\n", "is not valid TOML"),
        (GOOD + f"tiers = {'[' * 5000}{']' * 5000}\n", "is not valid TOML"),
        (
            GOOD + "valid_from = 0001-01-01T00:00:00+14:00\n",
            "entry 1 (m): valid_from: must lie in",
        ),
        ("prices = []\n", "prices: is not a field of a price file; known: price"),
        ("price = 3\n", "price: "),
        ("price = [3]\n", "entry 1 (not a table)"),
        (
            '[[price]]\nsource = "s"\nusd_per_mtok = { input = 1, output = 2 }\n',
            "entry 1 (no model): model: is missing",
        ),
        (GOOD + "valid_form = 2026-01-01\n", "entry 1 (m): valid_form: is not a field"),
        (GOOD + 'valid_from = "yesterday"\n', "entry 1 (m): valid_from: must be a date"),
        (GOOD + "valid_from = 2026-02-01\nvalid_until = 2026-01-01\n", "valid_from must be before valid_until"),
        (GOOD.replace("input = 1", "input = 1, cache_raed = 1"), "entry 1 (m): usd_per_mtok.cache_raed: is no token"),
        (GOOD.replace("input = 1", 'input = "1"'), "entry 1 (m): usd_per_mtok.input: must be a number"),
        (GOOD.replace("input = 1", "input = true"), "entry 1 (m): usd_per_mtok.input: must be a number"),
        (GOOD.replace("input = 1", "input = nan"), "entry 1 (m): usd_per_mtok.input: "),
        (GOOD.replace("input = 1", "input = -1"), "entry 1 (m): usd_per_mtok.input: "),
        (GOOD.replace("input = 1", "input = 0.1234567"), "entry 1 (m): usd_per_mtok.input: "),
        (GOOD.replace("input = 1", "input = 0"), "self_hosted: true"),
        (GOOD.replace("input = 1, output = 2", ""), "self_hosted: true"),
        (GOOD + "tiers = [{ above = 9, usd_per_mtok = { cache_read = 1 } }]\n", "prices cache_read, which"),
        (
            GOOD
            + "tiers = [{ above = 9, usd_per_mtok = { input = 1 } }, { above = 9, usd_per_mtok = { input = 2 } }]\n",
            "must ascend",
        ),
        (
            GOOD + "peaks = [{ days = ['mon'], start = 05:00:00, end = 04:00:00, times = 2 }]\n",
            "start must come before",
        ),
        (GOOD + "peaks = [{ days = ['monday'], start = 01:00:00, end = 04:00:00, times = 2 }]\n", "peaks.0.days.0"),
        (GOOD + GOOD, "entry 2 (m): valid_from: is the same as in entry 1"),
        (GOOD + "web_search_per_1k = -1\n", "entry 1 (m): web_search_per_1k: "),
        (RULE.replace("times = 0.5", ""), "[[modifier]] entry 1 (['m*']): says neither `times` nor a price"),
        (RULE.replace("times = 0.5", "times = 0"), "[[modifier]] entry 1 (['m*']): times: "),
        (RULE.replace("times = 0.5", "times = nan"), "[[modifier]] entry 1 (['m*']): times: "),
        (RULE + 'speed = "fast"\n', "names several conditions (service_tier, speed)"),
        (RULE + "valid_from = 2026-02-01\nvalid_until = 2026-01-01\n", "valid_from must be before valid_until"),
        (RULE + "tier = 1\n", "[[modifier]] entry 1 (['m*']): tier: is not a field of a price file; known: "),
        (RULE.replace('models = ["m*"]', ""), "[[modifier]] entry 1 (no model): models: is missing"),
        (RULE + "usd_per_mtok = { output = 0 }\n", "usd_per_mtok.output must be above 0"),
    ],
)
def test_a_wrong_price_file_is_named_with_entry_and_field(tmp_path: Path, text: str, complaint: str) -> None:
    path = write(tmp_path / "prices.toml", text)
    with pytest.raises(PriceFileError) as wrong:
        PriceBook([path])
    message = str(wrong.value)
    assert message.startswith(f"{path}: ")
    assert complaint in message
    assert "\n" not in message


def test_a_price_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PriceFileError, match="cannot be read"):
        PriceBook([tmp_path / "none.toml"])


def test_a_price_file_without_end_is_refused() -> None:
    with pytest.raises(PriceFileError, match="/dev/zero: longer than 1,000,000 bytes"):
        PriceBook([Path("/dev/zero")])


def test_prices_are_never_asked_for_at_a_time_without_a_zone() -> None:
    with pytest.raises(ValueError, match="aware"):
        BOOK.card("gpt-5", datetime(2026, 11, 24))  # noqa: DTZ001 - the wrong kind of time is the point


def test_a_contract_and_a_region_of_one_s_own_are_priced_from_a_file(tmp_path: Path) -> None:
    file = write(
        tmp_path / "own.toml",
        GOOD + RULE + '[[modifier]]\nmodels = ["m", "openai:gpt-5"]\nsource = "contract"\ntimes = 0.9\n'
        '[[modifier]]\nmodels = ["m"]\nsource = "contract"\nvalid_from = 2026-12-01\ntimes = 0.8\n'
        "usd_per_mtok = { cache_read = 0.5 }\nweb_search_per_1k = 5\n",
    )
    book = PriceBook([file])
    card = book.card("m", DAY)
    assert (card.price("input", 9), card.valid_until) == (Decimal("0.9"), datetime(2026, 12, 1, tzinfo=UTC))
    assert card.under({"service_tier": "batch"}).price("output", 9) == Decimal("0.9")
    assert book.card("gpt-5", DAY).price("input", 9) == Decimal("1.125")
    later = book.card("m", datetime(2026, 12, 1, tzinfo=UTC))
    # Of two contracts the later one in the file holds, once.
    assert [later.price(name, 9) for name in ("input", "cache_read")] == [Decimal("0.8"), Decimal("0.4")]
    assert later.usd("web_search", 1000, 0) == 5


def test_a_later_file_wins_over_the_shipped_modifier(tmp_path: Path) -> None:
    file = write(tmp_path / "own.toml", RULE.replace("m*", "claude-*").replace("0.5", "0.25"))
    card = PriceBook([file]).card("claude-opus-5-5", DAY)
    assert card.under({"service_tier": "batch"}).price("input", 9) == 1
    assert BOOK.card("claude-opus-5-5", DAY).under({"service_tier": "batch"}).price("input", 9) == 2


def test_a_modifier_reprices_every_length_of_the_prompt() -> None:
    card = BOOK.card("gpt-6-sol", DAY).under({"service_tier": "flex"})
    assert [card.price("output", n) for n in (272_000, 272_001)] == [5, Decimal("7.5")]


@pytest.mark.parametrize(
    ("ref", "usd"),
    [
        ("eu.anthropic.claude-opus-4-5-20251101-v1:0", "5.5"),
        ("global.anthropic.claude-opus-4-5-20251101-v1:0", "5"),
        ("anthropic/claude-haiku-4.5", "1"),
        ("anthropic/claude-3-7-sonnet", "3"),
    ],
)
def test_the_ids_of_resellers_are_found_at_their_prices(ref: str, usd: str) -> None:
    assert BOOK.card(ref, DAY).price("input", 10) == Decimal(usd)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["prices", "show", *arguments])
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def test_prices_show_tells_price_source_and_dates(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = shown(capsys, "deepseek-v4-flash", "--at", "2026-11-24T02:00")
    assert code == 0
    line = next(line for line in out.splitlines() if line.startswith("input"))
    for told in ("0.3 ", "2026-11-24 01:00Z", "2026-11-24 04:00Z", "DeepSeek list price 2026-09-10, x2 in peak hours"):
        assert told in line
    code, out, _ = shown(capsys, "gpt-5.5", "--at", "2026-11-24", "--json")
    told = json.loads(out)
    assert told["usd_per_million_units"]["input"] == "5"
    assert told["tiers"][0] == {
        "above_prompt_tokens": 272_000,
        "usd_per_million_units": {"input": "10", "cache_read": "1", "output": "45"},
    }
    assert told["source"].startswith("genai-prices ")
    assert {"field": "service_tier", "value": "flex", "times": "0.5", "usd_per_million_units": {}} in told["modifiers"]


def test_prices_show_has_zero_for_what_is_self_hosted_and_no_word_for_what_is_not_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "declared self_hosted" in shown(capsys, "self-hosted")[1]
    assert shown(capsys, "no-such-model")[0] == 2
    code, out, err = shown(capsys, "azure:mai-ds-r1:free")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no price by the token" in err


def test_a_discount_of_many_decimals_gives_the_prices_that_a_ledger_stores(tmp_path: Path) -> None:
    file = tmp_path / "discount.toml"
    file.write_text('[[modifier]]\nmodels = ["deepseek-v4-flash"]\nsource = "contract"\ntimes = 0.876543\n')
    card, whole = PriceBook([file]).card("deepseek-v4-flash", DAY), BOOK.card("deepseek-v4-flash", DAY)
    factor = Decimal("0.876543")
    assert card.usd_per_mtok == {name: round(usd * factor, PRICE_DECIMALS) for name, usd in whole.usd_per_mtok.items()}
    assert card.usd_per_mtok != {name: usd * factor for name, usd in whole.usd_per_mtok.items()}
