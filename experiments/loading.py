"""Reads a spec and finds everything that it names.

All that can be known to go wrong is found out here, before the first call costs money.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agents import registry
from agents.errors import RegistryError
from agents.handover import RoleDesign
from cost_model.errors import PriceFileError, PriceMissing
from cost_model.policies import POLICIES, charged_classes
from cost_model.prices import PriceBook
from experiments.budget import amount
from experiments.casting import role_model
from experiments.errors import SpecError
from experiments.experiment import Arm, Experiment, host_refusal
from experiments.price_ratio import settled
from experiments.spec import NAME, SANDBOXES, ArmSpec, RoleSpec, SpecFile, read_spec
from experiments.spec_mistakes import Place, near
from harbor_tasks.errors import TaskInvalid
from harbor_tasks.format import Task, bundled_tasks, load_tasks
from harbor_tasks.sandbox.host import NO_COPY

if TYPE_CHECKING:
    from agents.registry import ModelEntry
    from topologies import Topology

SHIPPED = Path(__file__).parent / "specs"

MAX_TRIALS = 1_000_000
"""Of one plan, which is held in memory."""


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
    to_run: bool = True,
) -> Experiment:
    """Reads and checks a spec; the arguments are the command line's and win over it. `no_budget` takes the budget away.
    Without `to_run` neither API keys nor a budget are asked for.

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
    given = {"name": name, "sandbox": sandbox, "concurrency": concurrency, "budget_usd": budget}
    spec = file.spec.model_copy(update={field: value for field, value in given.items() if value is not None})
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
    served = simulator_url is not None
    if spec.sandbox == "host" and (reason := host_refusal(simulated=simulated, served=served, tasks=tasks)):
        raise file.error(("sandbox",), f"the host sandbox isolates nothing and is refused {reason}; use bubblewrap")
    if spec.sandbox == "host" and spec.shadow_verify:
        raise file.error(("shadow_verify",), f"{NO_COPY}; use bubblewrap or docker, or leave it out")
    try:
        prices = PriceBook([file.folder / each for each in spec.prices])
    except PriceFileError as error:
        raise _blamed(file, "prices", error) from None
    budget = None if no_budget else spec.budget_usd
    found = Experiment(spec.name, spec, path, arms, tasks, used, prices, simulated, budget)
    _keys_and_prices(file, found, keys=to_run)
    if to_run and found.costs_money and budget is None and not no_budget:
        priced = sorted(name for name, entry in used.items() if not entry.self_hosted)
        raise file.error(
            ("budget_usd",),
            f"missing, and real models cost money ({', '.join(priced)}); add the dollars that the experiment may "
            "spend over all its runs (budget_usd: 5.00), or run it with --no-budget",
        )
    return settled(file, found)


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
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return whole and "@" not in url and not any(character.isspace() for character in url)


def _blamed(file: SpecFile, field: str, error: Exception) -> Exception:
    """The error of a file that the spec names, with the place at which it is named."""
    for index, each in enumerate(getattr(file.spec, field)):
        if str(error).startswith(f"{file.folder / each}:"):
            return file.error((field, index), str(error))
    return error


def _arm(file: SpecFile, index: int, arm: ArmSpec, known: Mapping[str, "ModelEntry"]) -> Arm:
    import topologies

    at = ("arms", index)
    with file.blaming((*at, "topology"), topologies.TopologyError):
        topology = topologies.find(arm.topology, file.folder)
    with file.blaming((*at, "parameters"), topologies.ParametersInvalid):
        parameters = topology.checked(arm.parameters)
    designs = {design.name: design for design in topology.roles_for(parameters)}
    for role in designs:
        if role not in arm.roles:
            raise file.error(
                (*at, "roles"),
                f"the role {role!r} of topology {topology.name!r} has no model; add `{role}: <model name>`",
            )
    roles = {}
    for role, wanted in arm.roles.items():
        if role not in designs:
            elsewhere = any(design.name == role for design in topology.roles)
            under = " under these parameters" if elsewhere else ""
            raise file.error(
                (*at, "roles", role),
                f"topology {topology.name!r} has no role {role!r}{under}; its roles: {', '.join(designs)}",
            )
        _refuse_idle(file, (*at, "roles", role), topology, designs[role], wanted)
        roles[role] = role_model(file, (*at, "roles", role), wanted, known)
    return Arm(arm.name, topology, roles, parameters)


def _refuse_idle(file: SpecFile, at: Place, topology: "Topology", design: RoleDesign, wanted: RoleSpec) -> None:
    """What a role is given and could never use would be thought to act."""
    role = f"the role {design.name!r} of topology {topology.name!r}"
    if design.one_answer and wanted.tools:
        raise file.error((*at, "tools"), f"{role} answers once and would never read what a tool tells; leave it out")
    if design.one_answer and wanted.context is not None:
        raise file.error((*at, "context"), f"{role} answers once and has nothing to forget; leave it out")
    own = next((each.tools for each in topology.roles if each.name == design.name), ())
    if wanted.tools and own and not design.tools:
        raise file.error((*at, "tools"), f"{role} has no tools under these parameters; leave it out, or change those")
    tools = design.tools if wanted.tools is None else wanted.tools
    if wanted.command_policy is not None and not tools and not design.one_answer:
        raise file.error((*at, "command_policy"), f"{role} has no tools that it could hold; leave it out")


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
            other = found.setdefault(task.name, task)
            if other.path.resolve() != task.path.resolve():
                raise file.error(
                    ("tasks", index), f"two tasks are named {task.name!r} ({other.path} and {task.path}); rename one"
                )
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
    with file.blaming(at, TaskInvalid):
        tasks, invalid = load_tasks(path)
    if invalid:
        more = f" (and {len(invalid) - 1} more invalid tasks there)" if invalid[1:] else ""
        raise file.error(at, f"{invalid[0]}{more}")
    return tasks


def _keys_and_prices(file: SpecFile, found: Experiment, *, keys: bool) -> None:
    spec = found.spec
    moment = spec.prices_at or (spec.virtual_epoch if found.simulated else datetime.now(UTC))
    for index, arm in enumerate(spec.arms):
        for role, wanted in arm.roles.items():
            entry, at = found.models[wanted.model], ("arms", index, "roles", role)
            if keys:
                with file.blaming(at, RegistryError):
                    registry.key_of(entry)
            try:
                classes = charged_classes(POLICIES[entry.cache])
                lacking = () if entry.self_hosted else found.card(entry.name, moment).lacking(classes)
                if lacking:
                    raise PriceMissing(f"the price of {entry.price!r} does not cover {', '.join(lacking)} tokens")
            except PriceMissing as error:
                raise file.error(
                    at, f"{error}; add a price file under `prices`, or declare `self_hosted: true` in the registry"
                ) from None
