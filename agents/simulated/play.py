"""What a persona says next: a pure function of the request and its seed.

It reads its role and the nonce in the system text, the task in what the user said, and where it stands from its own
earlier turns: a visit ends with a hand-over call, and the turns since then tell what comes next. Nothing is remembered
between requests. A planner explores, delegates, checks the report, and approves or sends the worker back; a lead goes
by the price that it was told; a reviewer looks and gives its verdict on the diff that it was told; who has one answer
plans it blindly; every other role explores, writes one of the task's scripts in pieces, runs it, looks at the result,
cleans up and submits.
"""

import re
from itertools import islice

import orjson

from agents.simulated import attempt, compacting, judging, looking, prose, weighing
from agents.simulated.catalogue import Catalogue, KnownTask, Script
from agents.simulated.conversation import COMMAND_TOOL, WORKING_TOOLS, Answer, Request, Tool, ToolCall, Transcript
from agents.simulated.dice import Dice
from agents.simulated.persona import Doing, Persona

_ROLE = re.compile(r"^Your role: ([\w-]{1,64})\.", re.MULTILINE)
_FORGOTTEN = re.compile(r"^You have sent the worker to work on this (\d{1,3}) times; your conversation", re.MULTILINE)
_DIGEST = re.compile(r"^Your brief 1:$", re.MULTILINE)
_NONCE = re.compile(r"\[run ([0-9a-f]{16})\]")

_WINDOW = 12
"""So many lines after the beginning of a turn its first command's result is looked for."""

_ASIDE = 60
"""How far ahead of a look the one beside it is taken from, so that they do not meet."""

_TOKENS_PER_WORD = 1.6

_SENDS_TO_WORK = "delegate"
_ACCEPTS = "approve"
_JUDGES = "verdict"
_PLANS = "plan"

BLIND = 0.5
"""How much of a skill is left to who must plan without having looked; an assumption."""

_PIECE = 10_000
"""Bytes of a script in one command of a plan."""

_LOOKING: tuple[prose.Step, ...] = ("explore", "look", "check")

_UNKNOWN = (
    "I do not know this task: its text is none of those that this simulated model can play. I looked at the directory, "
    "changed nothing and hand in nothing."
)
_NO_TOOLS = "This simulated model works through tools alone, and this request offers none that it may call."


class _Standing:
    """Where the conversation stands: `visit` counts finished visits, those of forgotten conversations included, `turn`
    the turns since, those that a summary took the place of included. `knows` nothing of what it saw then when it was
    not even told its own briefs."""

    def __init__(self, transcript: Transcript) -> None:
        self.opening = next((line.text for line in transcript.said if line.speaker == "user"), "")
        forgotten = _FORGOTTEN.search(self.opening)
        self.visit = len(transcript.handed_over) + (int(forgotten[1]) if forgotten else 0)
        self.knows = forgotten is None or _DIGEST.search(self.opening) is not None
        self._turns = transcript.visit
        self._said = transcript.said
        self.turn = len(self._turns)
        self._missing = 0
        remembered = compacting.remembered(self.opening)
        if remembered is not None:
            self._go_on(transcript, remembered)

    def _go_on(self, transcript: Transcript, remembered: compacting.Remembered) -> None:
        """What was said before is in the summary, and what stands whole of it counts in both."""
        turns = transcript.turns
        end = turns[remembered.kept] if remembered.kept < len(turns) else len(self._said)
        handed_over = sum(1 for place in transcript.handed_over if place >= end)
        self.visit = remembered.visits + handed_over
        if not handed_over:
            self.turn = remembered.turns + max(0, len(turns) - remembered.kept)
            self._missing = self.turn - len(self._turns)

    def result(self, turn: int) -> str:
        """What the first command of this visit's turn printed; an empty text when there is no such turn or result."""
        turn -= self._missing
        if not 0 <= turn < len(self._turns):
            return ""
        commands: list[str] = []
        before = "assistant"
        for line in islice(self._said, self._turns[turn], self._turns[turn] + _WINDOW):
            if line.speaker == "assistant":
                if before != "assistant":
                    break
                commands += [call for call, name in line.calls if name == COMMAND_TOOL]
            elif commands and line.answers == commands[0]:
                return line.text
            before = line.speaker
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
        return Answer(_NO_TOOLS)
    task = catalogue.find(request.transcript.said)
    found = _ROLE.search(request.system)
    role = found[1] if found else "solo"
    standing = _Standing(request.transcript)
    dice = Dice(seed, persona.model, nonce_of(request), task.name if task else "", role, standing.visit)
    playing = _Playing(persona, dice, task, role, standing, tools, parallel=request.parallel)
    if compacting.asked(request.transcript):
        answer = Answer(compacting.summary(dice, standing.visit, standing.turn, persona.words.report))
    elif _JUDGES in tools and role == "reviewer":
        answer = playing.review(task, judging.diff_in(request.transcript.said))
    elif task is None or task.solution is None:
        answer = playing.without_knowing()
    elif _SENDS_TO_WORK in tools and role == "planner":
        answer = playing.plan(task)
    elif _SENDS_TO_WORK in tools and role == "lead":
        told = weighing.told_ratio(request.system)
        told = weighing.told_ratio(standing.opening) if told is None else told
        answer = playing.lead(task, task.solution, weighing.willing(told))
    elif _PLANS in tools and COMMAND_TOOL not in tools:
        answer = playing.shoot(task, task.solution)
    else:
        answer = playing.do(task, task.solution)
    words = round(persona.thinking.tokens * request.thinks / _TOKENS_PER_WORD)
    return answer._replace(thinking=prose.thinking(dice, standing.turn, words)) if words else answer


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
        *,
        parallel: bool,
    ) -> None:
        self._persona = persona
        self._dice = dice
        self._instruction = task.instruction if task else ""
        self._role = role
        self._standing = standing
        self._tools = tools
        self._parallel = persona.parallel_calls if parallel else 0.0

    def plan(self, task: KnownTask) -> Answer:
        visit, turn = self._standing.visit, self._standing.turn
        words = self._persona.words
        if visit == 0:
            if turn < self._dice.about("explore", self._persona.planner.explore, 0.15):
                return self._command("explore", self._explore(turn, 150))
            subject = " ".join(task.instruction.split()[:12])
            return self._hand_over(_SENDS_TO_WORK, prose.brief(self._dice, subject, words.brief))
        # Who knows nothing of the place any more has to look at it once more before it can check anything.
        relook = 0 if self._standing.knows else self._persona.planner.explore
        if turn < self._dice.about("check", self._persona.planner.check, 0.25) + relook:
            return self._command("check", self._look(turn, 0))
        rates = self._persona.rework_rates
        if visit <= len(rates) and self._dice.unit("rework") < rates[visit - 1]:
            return self._hand_over(_SENDS_TO_WORK, prose.rework(self._dice, words.brief))
        return self._hand_over(_ACCEPTS, prose.report(self._dice, words.report))

    def lead(self, task: KnownTask, solution: Script, willing: float) -> Answer:
        visit, turn = self._standing.visit, self._standing.turn
        planner, words = self._persona.planner, self._persona.words
        if visit == 0:
            if self._dice.unit("hands over") >= willing:
                return self.do(task, solution)
            unseen = self._dice.unit("hands over looking") < willing
            if turn < (2 if unseen else self._dice.about("explore", planner.explore, 0.15)):
                return self._command("explore", self._explore(turn, 150))
            subject = " ".join(task.instruction.split()[:12])
            return self._hand_over(_SENDS_TO_WORK, prose.brief(self._dice, subject, words.brief))
        believes = self._dice.unit("believes") < willing
        checks = 1 if believes else self._dice.about("check", planner.check, 0.25)
        if turn < checks:
            return self._command("check", self._look(turn, 0))
        rates = self._persona.rework_rates
        if visit > len(rates) or self._dice.unit("rework") >= rates[visit - 1]:
            return self._hand_over("submit", prose.report(self._dice, words.report))
        if self._dice.unit("sends back") < willing:
            return self._hand_over(_SENDS_TO_WORK, prose.rework(self._dice, words.brief))
        return self.do(task, solution, checks)

    def shoot(self, task: KnownTask, solution: Script) -> Answer:
        """The whole script in one answer, with a skill that has not looked."""
        script = self._script(task, solution, self._persona.skill * BLIND)
        commands = [looking.LIST]
        if script is not None:
            pieces = attempt.write_commands(script.content, 1 + len(script.content) // _PIECE)
            commands = [*pieces, attempt.RUN, attempt.CLEAN]
        text = prose.beside(self._dice, "write", 0, self._persona.words.turn)
        return Answer(text, (ToolCall(_PLANS, "", orjson.dumps({"commands": commands}).decode()),))

    def review(self, task: KnownTask | None, diff: str) -> Answer:
        turn = self._standing.turn
        if COMMAND_TOOL in self._tools and turn < self._dice.about("check", self._persona.planner.check, 0.25):
            return self._command("check", self._look(turn, 0))
        judged = judging.judge(self._dice, self._persona.reviewing, task, diff)
        text = prose.beside(self._dice, "check", turn, self._persona.words.turn)
        return Answer(text, (ToolCall(_JUDGES, "", judged),))

    def do(self, task: KnownTask, solution: Script, checked: int = 0) -> Answer:
        """The work of a visit; after so many turns that `checked`, it need not explore."""
        doing = self._persona.doing(self._role)
        if checked:
            doing = doing.without_exploring()
        turn = self._standing.turn - checked
        commands = self._script_commands(task, solution, doing)
        if turn < doing.explore:
            return self._command("explore", self._explore(turn, 80))
        written = turn - doing.explore
        if written < len(commands):
            step: prose.Step = "run" if commands[written] == attempt.RUN else "write"
            return self._command(step, commands[written])
        left = max(self._dice.about("turns", doing.turns, 0.1), doing.needed) - turn
        if left > 2:
            before = checked + doing.explore + len(commands)
            return self._command("look", self._look(written - len(commands), before))
        # A script that was never written leaves nothing to remove, and a turn more to look.
        if left == 2 and commands:
            return self._command("clean", attempt.CLEAN)
        return self._hand_over("submit", prose.report(self._dice, self._persona.words.report))

    def without_knowing(self) -> Answer:
        if _PLANS in self._tools and COMMAND_TOOL not in self._tools:
            return Answer(_UNKNOWN)
        if self._standing.turn < 2:
            return self._command("explore", self._explore(self._standing.turn, 80))
        return self._hand_over(_ACCEPTS if _ACCEPTS in self._tools else "submit", _UNKNOWN)

    def _script_commands(self, task: KnownTask, solution: Script, doing: Doing) -> list[str]:
        """Writes and runs the script that this visit's skill draws; nothing when it draws wrong and none is known."""
        skill = self._persona.skill if self._standing.visit == 0 else self._persona.rework_skill
        script = self._script(task, solution, skill)
        return [] if script is None else [*attempt.write_commands(script.content, doing.pieces), attempt.RUN]

    def _script(self, task: KnownTask, solution: Script, skill: float) -> Script | None:
        if self._dice.unit("skill") < skill:
            return solution
        return self._dice.pick("wrong", task.wrong) if task.wrong else None

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
        turn = self._standing.turn
        text = prose.beside(self._dice, step, turn, self._persona.words.turn)
        tool = self._tools.get(COMMAND_TOOL)
        if tool is None:
            return Answer(text)
        commands = [command]
        if step in _LOOKING and self._parallel and self._dice.unit(f"parallel {turn}") < self._parallel:
            commands.append(self._nth_look(_ASIDE + turn, self._standing.result(1), 40, repository=False))
        return Answer(text, tuple(ToolCall(tool.name, tool.parameter, command) for command in commands))

    def _hand_over(self, name: str, payload: str) -> Answer:
        """Calls the tool `name`, or when it is not offered the last of those that end a visit."""
        others = [tool for tool in self._tools.values() if tool.name not in WORKING_TOOLS]
        tool = self._tools.get(name) or (others[-1] if others else None)
        if tool is None:
            return Answer(payload)
        text = prose.beside(self._dice, "check", self._standing.turn, min(40, self._persona.words.turn))
        return Answer(text, (ToolCall(tool.name, tool.parameter, payload),))
