"""What a persona says next: a pure function of the request and its seed.

It reads its role and the nonce in the system text, the task in what the user said, and where it stands from its own
earlier turns: a visit ends with a hand-over call, and the turns since then tell what comes next. Nothing is remembered
between requests. A planner explores, delegates, checks the report, and approves or sends the worker back; every other
role explores, writes one of the task's scripts in pieces, runs it, looks at the result, cleans up and submits.
"""

import re
from itertools import islice

from agents.simulated import attempt, looking, prose
from agents.simulated.catalogue import Catalogue, KnownTask, Script
from agents.simulated.conversation import COMMAND_TOOL, Answer, Request, Tool, Transcript
from agents.simulated.dice import Dice
from agents.simulated.persona import Doing, Persona

_ROLE = re.compile(r"^Your role: ([\w-]{1,64})\.", re.MULTILINE)
_NONCE = re.compile(r"\[run ([0-9a-f]{16})\]")

_SENDS_TO_WORK = "delegate"
_ACCEPTS = "approve"

_UNKNOWN = (
    "I do not know this task: its text is none of those that this simulated model can play. I looked at the directory, "
    "changed nothing and hand in nothing."
)
_NO_TOOLS = "This simulated model works through tools alone, and this request offers none that it may call."


class _Standing:
    """Where the conversation stands: `visit` counts finished visits, `turn` the turns since."""

    def __init__(self, transcript: Transcript) -> None:
        self.visit = len(transcript.handed_over)
        self._turns = transcript.visit
        self._said = transcript.said
        self.turn = len(self._turns)

    def result(self, turn: int) -> str:
        """What the command of this visit's turn printed; an empty text when there is no such turn or result."""
        if turn >= len(self._turns):
            return ""
        place = self._turns[turn]
        calls = {call for call, name in self._said[place].calls if name == COMMAND_TOOL}
        for line in islice(self._said, place + 1, place + 4):
            if line.answers in calls:
                return line.text
        return ""


def nonce_of(request: Request) -> str:
    """16 hex digits that keep runs apart, or an empty text; in the system text, else the first tool's description."""
    found = _NONCE.search(request.system[:200])
    if found is None and request.tools:
        found = _NONCE.search(request.tools[0].description[:200])
    return found[1] if found else ""


def respond(persona: Persona, seed: int, catalogue: Catalogue, request: Request) -> Answer:
    """The next thing that `persona` says. Pure: the same arguments give the same answer."""
    tools = {tool.name: tool for tool in request.tools}
    if not tools:
        return Answer(_NO_TOOLS, None)
    task = catalogue.find(request.transcript.said)
    found = _ROLE.search(request.system)
    role = found[1] if found else "solo"
    standing = _Standing(request.transcript)
    dice = Dice(seed, persona.model, nonce_of(request), task.name if task else "", role, standing.visit)
    playing = _Playing(persona, dice, task, role, standing, tools)
    if task is None or task.solution is None:
        return playing.without_knowing()
    if _SENDS_TO_WORK in tools and role == "planner":
        return playing.plan(task)
    return playing.do(task, task.solution)


class _Playing:
    """One turn of one role."""

    def __init__(
        self,
        persona: Persona,
        dice: Dice,
        task: KnownTask | None,
        role: str,
        standing: _Standing,
        tools: dict[str, Tool],
    ) -> None:
        self._persona = persona
        self._dice = dice
        self._instruction = task.instruction if task else ""
        self._role = role
        self._standing = standing
        self._tools = tools

    def plan(self, task: KnownTask) -> Answer:
        visit, turn = self._standing.visit, self._standing.turn
        words = self._persona.words
        if visit == 0:
            if turn < self._dice.about("explore", self._persona.planner.explore, 0.15):
                return self._command("explore", self._explore(turn, 150))
            subject = " ".join(task.instruction.split()[:12])
            return self._hand_over(_SENDS_TO_WORK, prose.brief(self._dice, subject, words.brief))
        if turn < self._dice.about("check", self._persona.planner.check, 0.25):
            return self._command("check", self._look(turn, 0))
        rates = self._persona.rework_rates
        if visit <= len(rates) and self._dice.unit("rework") < rates[visit - 1]:
            return self._hand_over(_SENDS_TO_WORK, prose.rework(self._dice, words.brief))
        return self._hand_over(_ACCEPTS, prose.report(self._dice, words.report))

    def do(self, task: KnownTask, solution: Script) -> Answer:
        doing = self._persona.doing(self._role)
        turn = self._standing.turn
        commands = self._script_commands(task, solution, doing)
        if turn < doing.explore:
            return self._command("explore", self._explore(turn, 80))
        written = turn - doing.explore
        if written < len(commands):
            step: prose.Step = "run" if commands[written] == attempt.RUN else "write"
            return self._command(step, commands[written])
        left = max(self._dice.about("turns", doing.turns, 0.1), doing.needed) - turn
        if left > 2:
            return self._command("look", self._look(written - len(commands), doing.explore + len(commands)))
        # A script that was never written leaves nothing to remove, and a turn more to look.
        if left == 2 and commands:
            return self._command("clean", attempt.CLEAN)
        return self._hand_over("submit", prose.report(self._dice, self._persona.words.report))

    def without_knowing(self) -> Answer:
        if self._standing.turn < 2:
            return self._command("explore", self._explore(self._standing.turn, 80))
        return self._hand_over(_ACCEPTS if _ACCEPTS in self._tools else "submit", _UNKNOWN)

    def _script_commands(self, task: KnownTask, solution: Script, doing: Doing) -> list[str]:
        """Writes and runs the script that this visit's skill draws; nothing when it draws wrong and none is known."""
        skill = self._persona.skill if self._standing.visit == 0 else self._persona.rework_skill
        if self._dice.unit("skill") < skill:
            script = solution
        elif task.wrong:
            script = self._dice.pick("wrong", task.wrong)
        else:
            return []
        return [*attempt.write_commands(script.content, doing.pieces), attempt.RUN]

    def _explore(self, turn: int, lines: int) -> str:
        if turn < 2:
            return (looking.LIST, looking.FIND)[turn]
        repository = looking.is_repository(self._standing.result(0))
        return self._nth_look(turn - 2, self._standing.result(1), lines, repository)

    def _look(self, number: int, before: int) -> str:
        """Look `number` at a result; `before` turns of this visit came before the first look."""
        if number == 0:
            return looking.FIND_AGAIN
        listing = self._standing.result(before)
        return self._nth_look(number - 1, listing, 60, looking.is_repository(listing))

    def _nth_look(self, number: int, listing: str, lines: int, repository: bool) -> str:
        files = looking.in_order(looking.files_in(listing), self._instruction)
        words = looking.words_of(self._instruction)
        return next(islice(looking.looks(files, words, repository=repository, lines=lines), number, None))

    def _command(self, step: prose.Step, command: str) -> Answer:
        text = prose.beside(self._dice, step, self._standing.turn, self._persona.words.turn)
        tool = self._tools.get(COMMAND_TOOL)
        return Answer(text, None) if tool is None else Answer(text, (tool.name, tool.parameter, command))

    def _hand_over(self, name: str, payload: str) -> Answer:
        """Calls the tool `name`, or when it is not offered the last of those that end a visit."""
        others = [tool for tool in self._tools.values() if tool.name != COMMAND_TOOL]
        tool = self._tools.get(name) or (others[-1] if others else None)
        if tool is None:
            return Answer(payload, None)
        text = prose.beside(self._dice, "check", self._standing.turn, min(40, self._persona.words.turn))
        return Answer(text, (tool.name, tool.parameter, payload))
