"""A spec with everything found that it names: tasks, topologies, models, prices; and the plan that follows from it.

All that can be known to go wrong is found out here, before the first call costs money.
"""

import hashlib
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agents import registry
from agents.crew import RoleModel, load_prompt
from agents.errors import RegistryError
from cost_model.errors import PriceFileError, PriceMissing
from cost_model.policies import POLICIES, charged_classes
from cost_model.price_card import SELF_HOSTED, PriceCard
from cost_model.prices import PriceBook
from experiments.budget import amount
from experiments.errors import SpecError
from experiments.plan import Plan, PlannedArm, PlannedTask, plan
from experiments.spec import NAME, SANDBOXES, ArmSpec, Spec, SpecFile, near, read_spec
from harbor_tasks.errors import TaskInvalid
from harbor_tasks.format import Task, bundled_tasks, load_tasks

if TYPE_CHECKING:
    from agents.registry import ModelEntry
    from topologies import Topology

SHIPPED = Path(__file__).parent / "specs"

MAX_TRIALS = 1_000_000
"""Of one plan, which is held in memory."""


@dataclass(frozen=True, slots=True)
class Arm:
    """`parameters` are the topology's own, validated."""

    name: str
    topology: "Topology"
    roles: Mapping[str, RoleModel]
    parameters: Any


@dataclass(frozen=True, slots=True)
class Experiment:
    """`name` is the spec's, or the one given by --as. `simulated`: all its models are; `models` are those it uses.
    `budget_usd` None sets no limit to what may be spent."""

    name: str
    spec: Spec
    path: Path
    arms: Mapping[str, Arm]
    tasks: Mapping[str, Task]
    models: Mapping[str, "ModelEntry"]
    prices: PriceBook
    simulated: bool
    budget_usd: Decimal | None

    @property
    def costs_money(self) -> bool:
        """Whether a call of it can be billed by anybody."""
        return not self.simulated and not all(entry.self_hosted for entry in self.models.values())

    def card(self, model: str, requested_at: datetime) -> PriceCard:
        """The prices of a model of this experiment for a call at that moment. Raises PriceMissing."""
        entry = self.models[model]
        return (
            SELF_HOSTED if entry.price is None else self.prices.card(entry.price, self.spec.prices_at or requested_at)
        )

    def plan(self) -> Plan:
        return plan(
            self.spec,
            experiment=self.name,
            simulated=self.simulated,
            arms=[_planned(self, arm) for arm in self.arms.values()],
            tasks=[
                PlannedTask(task.name, task.digest, task.category, {"digest": task.digest})
                for task in self.tasks.values()
            ],
        )


def find_spec(name: str) -> Path:
    """A path, or the name of a shipped spec ("quickstart")."""
    shipped = {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}
    path = Path(name)
    try:
        if path.suffix in (".yaml", ".yml") or len(path.parts) > 1 or path.exists():
            return path
    except OSError as error:
        raise SpecError(
            f"{name[:60]}: cannot be read ({error.strerror}); give a spec file or the name of a shipped spec"
        ) from None
    if name in shipped:
        return shipped[name]
    raise SpecError(f"{name}: no such spec file, and no shipped spec of this name; {near(name, list(shipped))}")


def load(
    path: Path,
    *,
    name: str | None = None,
    sandbox: str | None = None,
    concurrency: int | None = None,
    models: tuple[Path, ...] = (),
    simulator_url: str | None = None,
    budget_usd: str | Decimal | None = None,
    no_budget: bool = False,
) -> Experiment:
    """Reads and checks a spec; the arguments are the command line's and win over it. `no_budget` takes the budget away.

    Raises SpecError, and TaskInvalid, RegistryError or PriceFileError for the files that the spec names.
    """
    file = read_spec(path)
    if name is not None and not NAME.fullmatch(name):
        raise SpecError(
            f"--as: {name!r} is no name; expected letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    if sandbox is not None and sandbox not in SANDBOXES:
        raise SpecError(f"--sandbox: {sandbox!r} is not known; expected {', '.join(SANDBOXES[:-1])} or {SANDBOXES[-1]}")
    if simulator_url is not None and not _is_address(simulator_url):
        raise SpecError(f"--simulator: {simulator_url!r} is no address; expected one such as http://127.0.0.1:8787")
    budget = None if budget_usd is None else _budget(budget_usd, no_budget)
    spec = file.spec.model_copy(
        update={
            key: value
            for key, value in (
                ("name", name),
                ("sandbox", sandbox),
                ("concurrency", concurrency),
                ("budget_usd", budget),
            )
            if value is not None
        }
    )
    try:
        known = registry.load_models([*(file.folder / each for each in spec.models), *models])
    except RegistryError as error:
        raise _blamed(file, "models", error) from None
    arms = {arm.name: _arm(file, index, arm, known) for index, arm in enumerate(spec.arms)}
    used = {model.entry.name: model.entry for arm in arms.values() for model in arm.roles.values()}
    simulated = _all_or_none_simulated(file, used)
    tasks = _tasks(file)
    trials = spec.repeats * len(tasks) * len(arms)
    if trials > MAX_TRIALS:
        raise file.error(
            ("repeats",), f"plans {trials:,} trials, more than {MAX_TRIALS:,}; lower repeats, or split tasks or arms"
        )
    _host_sandbox(file, spec.sandbox, simulated, simulator_url, tasks)
    try:
        prices = PriceBook([file.folder / each for each in spec.prices])
    except PriceFileError as error:
        raise _blamed(file, "prices", error) from None
    budget = None if no_budget else spec.budget_usd
    found = Experiment(spec.name, spec, path, arms, tasks, used, prices, simulated, budget)
    _keys_and_prices(file, found)
    if found.costs_money and budget is None and not no_budget:
        priced = sorted(name for name, entry in used.items() if not entry.self_hosted)
        raise file.error(
            ("budget_usd",),
            f"missing, and real models cost money ({', '.join(priced)}); add the dollars that the experiment may "
            "spend over all its runs (budget_usd: 5.00), or run it with --no-budget",
        )
    return found


def _budget(usd: str | Decimal, no_budget: bool) -> Decimal:
    if no_budget:
        raise SpecError("--budget: cannot stand beside --no-budget; give one of them")
    try:
        return amount(str(usd))
    except ValueError as error:
        raise SpecError(f"--budget: {error}") from None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    spaced = any(character.isspace() for character in url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and "@" not in url and not spaced


def _blamed(file: SpecFile, field: str, error: Exception) -> Exception:
    """The error of a file that the spec names, with the place at which it is named."""
    for index, each in enumerate(getattr(file.spec, field)):
        if str(error).startswith(f"{file.folder / each}:"):
            return file.error((field, index), str(error))
    return error


def _arm(file: SpecFile, index: int, arm: ArmSpec, known: Mapping[str, "ModelEntry"]) -> Arm:
    import topologies

    at = ("arms", index)
    try:
        topology = topologies.find(arm.topology)
    except topologies.UnknownTopology as error:
        raise file.error((*at, "topology"), str(error)) from None
    needed = [role.name for role in topology.roles]
    for role in needed:
        if role not in arm.roles:
            raise file.error(
                (*at, "roles"),
                f"the role {role!r} of topology {topology.name!r} has no model; add `{role}: <model name>`",
            )
    roles = {}
    for role, wanted in arm.roles.items():
        if role not in needed:
            raise file.error(
                (*at, "roles", role),
                f"topology {topology.name!r} has no role {role!r}; its roles: {', '.join(needed)}",
            )
        entry = known.get(wanted.model)
        if entry is None:
            raise file.error(
                (*at, "roles", role),
                f"unknown model {wanted.model!r}; {near(wanted.model, sorted(known))} (all: `fullchain models list`)",
            )
        lifetimes = POLICIES[entry.cache].lifetimes
        if wanted.lifetime is not None and wanted.lifetime not in lifetimes:
            raise file.error(
                (*at, "roles", role, "lifetime"),
                f"the cache of model {entry.name!r} ({entry.cache}) has no lifetime {wanted.lifetime!r}; "
                f"it has: {', '.join(lifetimes) or 'none'}",
            )
        if wanted.effort is not None and wanted.effort not in entry.efforts:
            raise file.error(
                (*at, "roles", role, "effort"),
                f"model {entry.name!r} takes no effort {wanted.effort!r}; it takes: "
                f"{', '.join(entry.efforts) or 'none, so leave it out'}",
            )
        if wanted.temperature is not None and not entry.temperature:
            raise file.error(
                (*at, "roles", role, "temperature"), f"model {entry.name!r} takes no temperature; leave it out"
            )
        roles[role] = RoleModel(entry, wanted.lifetime, wanted.effort, wanted.temperature)
    try:
        parameters = topology.checked(arm.parameters)
    except topologies.ParametersInvalid as error:
        raise file.error((*at, "parameters"), str(error)) from None
    return Arm(arm.name, topology, roles, parameters)


def _all_or_none_simulated(file: SpecFile, used: Mapping[str, "ModelEntry"]) -> bool:
    simulated = sorted(name for name, entry in used.items() if entry.simulated)
    real = sorted(used.keys() - simulated)
    if simulated and real:
        raise file.error(
            ("arms",),
            f"mixes simulated models ({', '.join(simulated)}) with real ones ({', '.join(real)}); "
            "no comparison may mix them: write two specs",
        )
    return bool(simulated)


def _tasks(file: SpecFile) -> dict[str, Task]:
    found: dict[str, Task] = {}
    for index, entry in enumerate(file.spec.tasks):
        for task in _expanded(file, index, entry):
            if task.name in found:
                other = found[task.name]
                if other.path.resolve() == task.path.resolve():
                    continue
                raise file.error(
                    ("tasks", index), f"two tasks are named {task.name!r} ({other.path} and {task.path}); rename one"
                )
            found[task.name] = task
    return found


def _expanded(file: SpecFile, index: int, entry: str) -> list[Task]:
    at = ("tasks", index)
    bundled, _, name = entry.partition("/")
    if bundled == "bundled":
        shelf = sorted(path.parent.name for path in bundled_tasks().glob("*/task.toml"))
        if entry != "bundled" and name not in shelf:
            raise file.error(at, f"no bundled task {name!r}; {near(name, shelf)}")
        path = bundled_tasks() / name if name else bundled_tasks()
    else:
        path = file.folder / entry
    try:
        there = path.is_dir()
    except OSError as error:
        raise file.error(at, f"{path} cannot be read ({error.strerror}); mend its mode") from None
    if not there:
        raise file.error(
            at, f"no task directory {entry!r} (looked at {path}); expected bundled, bundled/<name> or a path"
        )
    try:
        tasks, invalid = load_tasks(path)
    except TaskInvalid as error:
        raise file.error(at, str(error)) from None
    if invalid:
        more = f" (and {len(invalid) - 1} more invalid tasks there)" if invalid[1:] else ""
        raise file.error(at, f"{invalid[0]}{more}")
    return tasks


def _host_sandbox(
    file: SpecFile, sandbox: str, simulated: bool, simulator_url: str | None, tasks: Mapping[str, Task]
) -> None:
    if sandbox != "host":
        return
    reason = host_refusal(simulated=simulated, served=simulator_url is not None, tasks=tasks)
    if reason:
        raise file.error(("sandbox",), f"the host sandbox isolates nothing and is refused {reason}; use bubblewrap")


def host_refusal(*, simulated: bool, served: bool, tasks: Mapping[str, Task]) -> str | None:
    """Why the sandbox without isolation may not be used, None when it may: it takes bundled tasks and the in-process
    simulator alone."""
    if not simulated:
        return "to real models"
    if served:
        return "to a served simulator"
    foreign = next((task.name for task in tasks.values() if not task.bundled), None)
    return f"to tasks that are not bundled ({foreign})" if foreign else None


def _keys_and_prices(file: SpecFile, found: Experiment) -> None:
    spec = found.spec
    moment = spec.prices_at or (spec.virtual_epoch if found.simulated else datetime.now(UTC))
    for index, arm in enumerate(spec.arms):
        for role, wanted in arm.roles.items():
            entry, at = found.models[wanted.model], ("arms", index, "roles", role)
            try:
                registry.key_of(entry)
                classes = charged_classes(POLICIES[entry.cache])
                lacking = () if entry.self_hosted else found.card(entry.name, moment).lacking(classes)
                if lacking:
                    raise PriceMissing(f"the price of {entry.price!r} does not cover {', '.join(lacking)} tokens")
            except RegistryError as error:
                raise file.error(at, str(error)) from None
            except PriceMissing as error:
                raise file.error(
                    at, f"{error}; add a price file under `prices`, or declare `self_hosted: true` in the registry"
                ) from None


def _planned(experiment: Experiment, arm: Arm) -> PlannedArm:
    spec = experiment.spec
    parts = {
        "topology": arm.topology.name,
        "topology_code": _source_digest(arm.topology),
        "roles": {role: _role_parts(model) for role, model in arm.roles.items()},
        "prompts": {role.prompt: _prompt_digest(role.prompt) for role in arm.topology.roles},
        "parameters": arm.parameters.model_dump(mode="json"),
        "limits": spec.limits.model_dump(mode="json"),
        "pass_threshold": str(spec.pass_threshold.normalize()),
        "seed": spec.seed,
        "prices_at": spec.prices_at.astimezone(UTC).isoformat() if spec.prices_at else None,
    }
    if experiment.simulated:
        parts |= {
            "virtual_epoch": spec.virtual_epoch.astimezone(UTC).isoformat(),
            "personas": _persona_digests({model.entry.model for model in arm.roles.values()}),
        }
    return PlannedArm(arm.name, arm.topology.name, {role: model.entry.name for role, model in arm.roles.items()}, parts)


def _role_parts(model: RoleModel) -> dict[str, object]:
    """What is newer than stored plans stands in it only where it was set: else each of them would have changed."""
    entry = model.entry.model_dump(mode="json", exclude=set(_CHOICES))
    given = model.entry.model_dump(exclude_defaults=True)
    parts: dict[str, object] = {
        "lifetime": model.lifetime,
        "entry": {name: value for name, value in entry.items() if name in given or name not in _NEWER},
    }
    chosen = {"effort": model.effort, "temperature": model.temperature}
    return parts | {name: value for name, value in chosen.items() if value is not None}


_CHOICES = ("efforts", "temperature")
"""Fields of an entry that only say what a role may choose: what it chose decides."""

_NEWER = ("caching", "cache_key", "reasoning", "actions", "extra_body", "headers")
"""Fields that entries did not always have."""


def _source_digest(topology: "Topology") -> str:
    module = importlib.import_module(topology.build.__module__)
    return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:16]


def _prompt_digest(prompt: str) -> str:
    return hashlib.sha256(load_prompt(prompt).encode()).hexdigest()[:16]


def _persona_digests(models: set[str]) -> dict[str, str]:
    """Of the personas that were there from the first, and of those beside them that the arm uses."""
    import agents.simulated

    folder = Path(agents.simulated.__file__ or "").parent / "personas"
    further = [path for path in folder.glob("*/*.yaml") if path.stem in models]
    paths = sorted([*folder.glob("*.yaml"), *further])
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths}
