"""fullchain models add: writes a model of one's own into a models file, then checks it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

if TYPE_CHECKING:
    from cost_model.prices import PriceBook

DEFAULT_FILE = Path("models.yaml")
NONE = "none"
"""The answer to a question for a key variable where no key is needed."""

SELF_HOSTED = "self-hosted"
"""The answer to the question for prices where tokens cost nothing."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def add(
    name: Annotated[
        str | None, typer.Argument(help="What specs will call it.", metavar="NAME", show_default=False)
    ] = None,
    file: Annotated[
        Path, typer.Option("--to", help="The models file to create or extend.", metavar="FILE", show_default=True)
    ] = DEFAULT_FILE,
    like: Annotated[
        str | None, typer.Option(help="A known model that it is like: all else comes from there.", metavar="MODEL")
    ] = None,
    provider: Annotated[str | None, typer.Option(help="anthropic, openai, ..., local, or a name of your own.")] = None,
    model: Annotated[str | None, typer.Option(help="What the provider is asked for.")] = None,
    protocol: Annotated[str | None, typer.Option(help="anthropic_messages, openai_chat or openai_responses.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Where it answers.", metavar="URL")] = None,
    key_variable: Annotated[
        str | None, typer.Option(help="The environment variable with the key, or none.", metavar="NAME")
    ] = None,
    price: Annotated[
        str | None, typer.Option(help="Whose prices count (a name of a price list), or self-hosted.", metavar="NAME")
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="How its prompt cache behaves: a name of cost_model/policies.py.")
    ] = None,
    actions: Annotated[str | None, typer.Option(help="tools, json_schema or fenced.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="The longest answer.")] = None,
    context_tokens: Annotated[int | None, typer.Option(min=1, help="Prompt and answer together.")] = None,
    extra: Annotated[
        list[Path] | None, typer.Option("--models", help="A further registry file; may be repeated.", metavar="FILE")
    ] = None,
    prices: Annotated[
        list[Path] | None, typer.Option("--prices", help="A further price file; may be repeated.", metavar="FILE")
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Tries it out afterwards.")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Checks without asking, whatever it can cost.")] = False,
) -> None:
    """Asks what was not given, writes the entry, and checks it as `fullchain models check` does.

    Without a terminal what is not given takes its default. The file keeps everything that stands in it. Exit code as of
    the check.
    """
    from agents.models_file import read_models_file, save, with_entry
    from agents.registry import find_model, load_models
    from cost_model.prices import PriceBook
    from experiments.cli.models_check import check_entry
    from experiments.cli.terminal import one_line, say

    # The file itself is known too: an entry may be like one that stands there.
    files = [*(extra or []), *([file] if file.exists() else [])]
    book = PriceBook(prices or [])
    given: dict[str, Any] = {
        "provider": provider, "model": model, "protocol": protocol, "base_url": base_url,
        "key_variable": key_variable, "price": price, "cache": cache, "actions": actions,
        "max_output_tokens": max_output_tokens, "context_tokens": context_tokens,
    }  # fmt: skip
    asking = _Asking()
    name = asking("name", name, None, "what specs will call it")
    fields = _Fields(asking, files, given, lambda ref: _priced(book, ref)).of(name, like)
    written = with_entry(str(file), read_models_file(file), name, fields)
    # Whatever is wrong with it is found before anything is written.
    entry = find_model(load_models(files, draft=(file, written)), name)
    shipped = name in load_models()
    save(file, written)
    say(f"wrote {one_line(name)} to {one_line(str(file))}" + (", in place of the shipped one" if shipped else ""))
    say(f"specs find it with `models: [{one_line(str(file))}]`, commands with --models {one_line(str(file))}")
    if check:
        raise typer.Exit(0 if check_entry(entry, book, yes) else 1)


class _Asking:
    """Asks on a terminal; elsewhere a question has its default, or is an error that names the option."""

    def __init__(self) -> None:
        self._terminal = sys.stdin.isatty() and sys.stderr.isatty()

    def __call__(
        self,
        name: str,
        given: Any,
        default: str | None,
        what: str,
        *,
        among: Sequence[str] = (),
        number: bool = False,
    ) -> Any:
        """The option's value if it was given, else the answer. Raises SpecError without one."""
        from experiments.errors import SpecError

        if given is not None:
            return given
        if not self._terminal:
            if default is not None:
                return int(default) if number else default
            where = "NAME" if name == "name" else f"--{name.replace('_', '-')}"
            raise SpecError(f"{where}: is missing, and there is no terminal to ask on: {what}")
        while True:
            answer = self._line(f"{what}{'' if default is None else f' [{default}]'}: ") or default
            if answer is None:
                continue
            if among and answer not in among:
                self._say(f"one of {', '.join(among)}")
            elif number and not (answer.isascii() and answer.isdecimal() and int(answer) > 0):
                self._say("a whole number of tokens")
            else:
                return int(answer) if number else answer

    def _line(self, question: str) -> str:
        from experiments.cli.question import answer
        from experiments.errors import SpecError

        try:
            line = answer(question)
        except KeyboardInterrupt:
            self._say("")
            raise typer.Exit(130) from None
        if not line:
            raise SpecError("no answer: nothing was written")
        return line.strip()

    def _say(self, line: str) -> None:
        from experiments.cli.terminal import say

        say(line, stderr=True)


class _Fields:
    """The fields of an entry: what was given or answered, as far as it is not what the entry would inherit anyway."""

    def __init__(
        self, ask: _Asking, files: Sequence[Path], given: Mapping[str, Any], priced: Callable[[str], bool]
    ) -> None:
        self._ask, self._files, self._given, self._priced = ask, files, given, priced

    def of(self, name: str, like: str | None) -> dict[str, Any]:
        """Raises SpecError and RegistryError."""
        from agents.registry import find_model, load_models

        if like is not None:
            base = find_model(load_models(self._files), like)
            if self._given["provider"] not in (None, base.provider):
                from experiments.errors import SpecError

                raise SpecError(f"--provider: {like} has the provider {base.provider}; leave --like or this out")
            fields: dict[str, Any] = {"like": like}
            model = self._ask("model", self._given["model"], base.model, "what the provider is asked for")
            fields |= {"model": model} if model != base.model else {}
            return fields | self._rest(self._inherited(name, fields), model)
        provider = self._provider()
        model = self._ask("model", self._given["model"], name, "model, as the provider calls it")
        return {"provider": provider, "model": model} | self._rest(self._common(provider, model), model)

    def _inherited(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """What an entry of these fields alone has: a price may follow from the model."""
        from agents.models_file import with_entry
        from agents.registry import load_models

        draft = Path("draft")
        return load_models(self._files, draft=(draft, with_entry("draft", "", name, fields)))[name].model_dump()

    def _provider(self) -> str:
        from agents.registry import load_providers

        known = ", ".join(load_providers(self._files))
        return str(self._ask("provider", self._given["provider"], None, f"provider ({known}, or a name of your own)"))

    def _common(self, provider: str, model: str) -> dict[str, Any]:
        """What an entry of this provider and model has without a word about it."""
        from agents.registry import load_models, load_providers

        for entry in load_models(self._files).values():
            if (entry.provider, entry.model) == (provider, model):
                return entry.model_dump()
        common = dict(load_providers(self._files).get(provider, {}))
        if isinstance(common.get("price"), str):
            common["price"] = common["price"].replace("{model}", model)
        return common

    def _rest(self, base: Mapping[str, Any], model: str) -> dict[str, Any]:
        ask, given = self._ask, self._given
        protocols = ("anthropic_messages", "openai_chat", "openai_responses")
        fields: dict[str, Any] = {}

        def settle(name: str, value: Any) -> None:
            if value != base.get(name):
                fields[name] = value

        settle(
            "protocol", ask("protocol", given["protocol"], base.get("protocol", "openai_chat"), "API", among=protocols)
        )
        base_url = str(ask("base_url", given["base_url"], base.get("base_url"), "base URL")).rstrip("/")
        settle("base_url", base_url)
        local = urlsplit(base_url).hostname in _LOOPBACK
        elsewhere = base_url != base.get("base_url")
        usual = base.get("key_variable") if not elsewhere else None
        variable = ask(
            "key_variable", given["key_variable"], usual or (NONE if local or not elsewhere else None),
            f"environment variable with the key ({NONE}: it needs no key)",
        )  # fmt: skip
        key = None if variable == NONE else variable
        usual_key = base.get("key_variable")
        # An inherited key is sent to another address only where the entry says so.
        if key != usual_key or (elsewhere and usual_key is not None):
            fields["key_variable"] = key
        fields |= self._price(base, model, local)
        self_hosted = fields.get("self_hosted", base.get("self_hosted"))
        settle("cache", self._cache(base, self_hosted=bool(self_hosted)))
        settle_actions = ask(
            "actions",
            given["actions"],
            base.get("actions", "tools"),
            "actions",
            among=("tools", "json_schema", "fenced"),
        )
        if settle_actions != base.get("actions", "tools"):
            fields["actions"] = settle_actions
        usual_limits = dict(base.get("limits") or {"max_output_tokens": 8192, "context_tokens": 32768})
        limits = {
            each: ask(each, given[each], str(usual_limits[each]), what, number=True)
            for each, what in (
                ("max_output_tokens", "tokens of the longest answer"),
                ("context_tokens", "tokens of prompt and answer together"),
            )
        }
        settle("limits", limits)
        return fields

    def _price(self, base: Mapping[str, Any], model: str, local: bool) -> dict[str, Any]:
        from experiments.errors import SpecError

        usual: str | None = SELF_HOSTED if base.get("self_hosted") else base.get("price")
        if usual is not None and usual != SELF_HOSTED and not self._priced(usual):
            usual = None
        usual = usual or (SELF_HOSTED if local else model if self._priced(model) else None)
        price = self._ask(
            "price", self._given["price"], usual,
            f"prices: a model's name in a price list, or {SELF_HOSTED} (tokens cost nothing)",
        )  # fmt: skip
        if price == SELF_HOSTED:
            return {} if base.get("self_hosted") else {"self_hosted": True}
        if not self._priced(price):
            raise SpecError(
                f"--price: no price is known for {price!r}: write a [[price]] with model = {price!r} and "
                f"usd_per_mtok into a price file and give it by --prices FILE, or say {SELF_HOSTED}"
            )
        return {} if price == base.get("price") else {"price": price}

    def _cache(self, base: Mapping[str, Any], *, self_hosted: bool) -> str:
        from cost_model.policies import POLICIES

        usual = base.get("cache", "prefix-16" if self_hosted else "none")
        told = f"prompt cache ({', '.join(POLICIES)})"
        return str(self._ask("cache", self._given["cache"], usual, told, among=tuple(POLICIES)))


def _priced(book: "PriceBook", ref: str) -> bool:
    from datetime import UTC, datetime

    from cost_model.errors import PriceMissing

    try:
        book.card(ref, datetime.now(UTC))
    except PriceMissing:
        return False
    return True
