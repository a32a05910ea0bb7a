"""Commands that only look: which of them a reader may run, and with which options.

A guard rail against mistakes, and no security boundary: whoever means to write finds a way.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from agents.shell.words import COMPUTED, Word, names

PLAIN = names(
    "ls cat head tail wc grep egrep fgrep cut tr comm paste nl tac rev fold expand unexpand od hexdump strings "
    "stat du df basename dirname realpath readlink diff cmp md5sum sha1sum sha256sum sha512sum cksum sum which type id "
    "whoami uname ps printenv seq sleep column jq zcat zgrep nproc free uptime arch locale"
)
"""They write nothing, whatever their options."""

SHELL = names(
    ": true false cd pwd pushd popd dirs echo printf test [ [[ break continue return exit shift wait set unset read "
    "local declare typeset export readonly let getopts shopt umask times jobs mapfile readarray"
)
"""bash's own, which change nothing but the shell itself."""

VARIABLES = re.compile(r"[a-z_][a-z0-9_]*|LC_[A-Z]+|LANG|TZ|COLUMNS|LINES|NO_COLOR|IFS|REPLY")
"""Those that may be set: a script's own, and such as lead no program to run another."""

_READS = ("read", "mapfile", "readarray", "getopts", "unset")
_DECLARES = ("export", "declare", "typeset", "readonly", "local")
_SETS = re.compile(r"([A-Za-z_]\w*)\s*(?:[-+*/%&^|]|<<|>>)?=(?!=)")
_FIND_WRITES = ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls")
_GIT_READS = names(
    "log diff show status blame annotate grep ls-files ls-tree cat-file rev-parse rev-list describe shortlog "
    "merge-base name-rev show-ref for-each-ref diff-tree diff-index diff-files count-objects whatchanged cherry "
    "check-ignore var version show-branch"
)
_GIT_WRITES = ("--output", "--ext-diff", "--textconv", "--open-files-in-pager", "--paginate", "--filters", "--web")
_GIT_LISTS: Mapping[str, str] = {
    "branch": r"-[avrl]+|--(list|all|remotes|show-current|verbose|no-color|(no-)?merged|(no-)?contains)(=.*)?",
    "tag": r"-[ln]\d*|--(list|sort=.*|points-at|contains|merged|no-merged)",
    "remote": r"-v|--verbose",
    "stash": r"list|show|-p|--stat|stash@\{\d+\}",
    "reflog": r"show|-n|-?\d+|HEAD.*",
    "config": r"--(get|get-all|list|show-origin|show-scope|local|global|system)|-l",
}
_SED_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:\\.|\[[^\]]*\]|[^\\/\[])*/I?)"
_SED_SUBSTITUTE = r"s(?P<d>[/|,#:!@%])(?:\\.|(?!(?P=d))[^\\\n])*(?P=d)(?:\\.|(?!(?P=d))[^\\\n])*(?P=d)[gpiI\d]*"
_SED_COMMAND = re.compile(
    rf"\s*(?:{_SED_ADDRESS}(?:\s*,\s*[+~]?{_SED_ADDRESS})?\s*!?\s*)?(?:[pdqQ=lnNhHgGxDPF]\s*\d*|{_SED_SUBSTITUTE})?\s*(?:[;\n]|$)"
)
_AWK_WRITES = re.compile(r"system|getline|@|>|(?<!\|)\|(?!\|)|\bclose\b")


def why_it_writes(words: Sequence[Word]) -> str | None:
    """Why a command with a known name is none that only looks; None where it is one."""
    name = words[0].text.rsplit("/", 1)[-1]
    if name in PLAIN or name in SHELL:
        return _variables(name, words)
    rule = _RULES.get(name)
    return f"{name} is none of the reading commands" if rule is None else rule(words[1:])


def _variables(name: str, words: Sequence[Word]) -> str | None:
    for each in _set_by(name, words[1:]):
        if COMPUTED in each:
            return "which variable it sets is computed"
        if not VARIABLES.fullmatch(each):
            return f"it sets {each}"
    return None


def _set_by(name: str, words: Sequence[Word]) -> Iterator[str]:
    """Names of the variables that one of bash's own commands sets, or may set."""
    texts = [COMPUTED if word.several else word.text for word in words]
    if name == "printf":
        yield from (text[2:] or following for text, following in pairwise([*texts, ""]) if text.startswith("-v"))
    elif name == "let":
        yield from (found[1] for text in texts for found in _SETS.finditer(text))
    elif name in _READS:
        yield from (text for text in texts if COMPUTED in text or re.fullmatch(r"[A-Za-z_]\w*(\[.*)?", text))
    elif name in _DECLARES:
        # What stands behind an equals sign stays one word.
        for text in (word.text for word in words):
            name, equals, _ = text.partition("=")
            if re.match(r"[-+]\w*n", text):
                # What it names is set through it.
                yield COMPUTED
            elif equals or COMPUTED in text:
                yield name.rstrip("+").partition("[")[0]


def _options(words: Sequence[Word]) -> list[str]:
    """Up to `--`, those that begin with a dash."""
    texts = [word.text for word in words]
    end = texts.index("--") if "--" in texts else len(texts)
    return [text for text in texts[:end] if text.startswith("-") and text != "-"]


def _given(options: Sequence[str], letters: str, *long: str) -> str | None:
    """The first that is one of the letters, alone or among others, or one of the long ones, abbreviated or not."""
    for option in options:
        name = option.partition("=")[0]
        if option.startswith("--"):
            if any(each.startswith(name) or name.startswith(each) for each in long):
                return name
        elif any(letter in option[1:] for letter in letters):
            return option
    return None


def _without(letters: str, *long: str) -> Callable[[Sequence[Word]], str | None]:
    def rule(words: Sequence[Word]) -> str | None:
        found = _given(_options(words), letters, *long)
        return f"its option {found} may write or run something" if found else None

    return rule


def _one_operand(words: Sequence[Word]) -> str | None:
    """A second one would be where it writes."""
    operands = [word for word in words if not word.text.startswith("-") or word.text == "-"]
    if any(word.several for word in operands) or len(operands) > 1:
        return "its second operand is a file that it writes"
    return None


def _find(words: Sequence[Word]) -> str | None:
    found = next((word.text for word in words if word.text in _FIND_WRITES), None)
    return f"its {found} writes" if found else None


def _sed(words: Sequence[Word]) -> str | None:
    scripts: list[Word] = []
    operands: list[Word] = []
    at = 0
    while at < len(words):
        text = words[at].text
        if re.fullmatch(r"-[nErsuz]*e|--expression", text) and at + 1 < len(words):
            scripts.append(words[at + 1])
            at += 1
        elif re.fullmatch(r"-[nErsuz]+|--(quiet|silent|regexp-extended|debug|posix|separate|null-data)", text):
            pass
        elif text.startswith("-") and text != "-":
            return f"its option {text} may write a file"
        else:
            operands.append(words[at])
        at += 1
    for script in scripts or operands[:1]:
        if not script.known or not _is_reading_sed(script.text):
            return "its script is none of the plain reading ones (addresses, p, d, q, s///)"
    return None


def _is_reading_sed(script: str) -> bool:
    at = 0
    while at < len(script):
        found = _SED_COMMAND.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return True


def _awk(words: Sequence[Word]) -> str | None:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        if not re.match(r"-[Fv]|--$", text):
            return f"its option {text} may read a program that writes"
        at += 2 if text in ("-F", "-v") else 1
    program = words[at] if at < len(words) else None
    if program is None or not program.known or _AWK_WRITES.search(program.text):
        return "its program may write or run something (>, |, system, getline)"
    return None


def _git(words: Sequence[Word]) -> str | None:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        if text in ("--version", "--help"):
            return None
        if not re.match(r"-C$|-P$|--no-pager$|--git-dir|--work-tree|--no-optional-locks$|--literal-pathspecs$", text):
            return f"git's option {text} may run something"
        at += 2 if text in ("-C", "--git-dir", "--work-tree") else 1
    if at == len(words):
        return None
    name, rest = words[at], words[at + 1 :]
    if not name.known:
        return "which git command it is, is computed"
    if name.text in _GIT_LISTS:
        odd = next((word.text for word in rest if not re.fullmatch(_GIT_LISTS[name.text], word.text)), None)
        first_lists = rest and re.match(r"--(get|points-at|contains|merged|no-)|--list|-l", rest[0].text)
        if not rest and name.text in ("stash", "config"):
            return f"git {name.text} alone does not only look"
        return None if odd is None or first_lists else f"git {name.text} {odd} does not only look"
    if name.text not in _GIT_READS:
        return f"git {name.text} is none of the reading ones"
    found = _given(_options(rest), "O" if name.text == "grep" else "", *_GIT_WRITES)
    return f"its option {found} may write or run something" if found else None


_RULES: Mapping[str, Callable[[Sequence[Word]], str | None]] = {
    "find": _find,
    "sed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "git": _git,
    "sort": _without("oT", "--output", "--compress-program", "--temporary-directory"),
    "tree": _without("oR"),
    "file": _without("C", "--compile"),
    "date": _without("s", "--set"),
    "hostname": lambda words: "it may set the name" if words else None,
    "uniq": _one_operand,
    "xxd": _one_operand,
    "rg": _without("", "--pre", "--hostname-bin"),
    "tar": lambda words: (
        None
        if words and re.fullmatch(r"-?[zjJv]*t[zjJvf]*", words[0].text) and len(words) < 3
        else "it may unpack or write"
    ),
    "unzip": lambda words: None if words and words[0].text in ("-l", "-v", "-Z") else "it may unpack",
}
