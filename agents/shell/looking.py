"""Commands that only look: which of them a reader may run, and with which options.

A guard rail against mistakes, and no security boundary: whoever means to write finds a way.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from agents.shell.git_looks import why_git_writes
from agents.shell.text_looks import why_awk_writes, why_sed_writes
from agents.shell.words import COMPUTED, Word, names

Rule = Callable[[Sequence[Word]], str | None]
"""Takes a command's words without its name, all static; tells why it does not only look, or None."""

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
_TAKE_NAMES = (*_READS, *_DECLARES, "test", "[", "let", "wait", "jobs", "shopt")
_FIND_WRITES = ("-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from")


def why_it_writes(words: Sequence[Word]) -> str | None:
    """Why a command with a known name is none that only looks; None where it is one."""
    name = words[0].text.rsplit("/", 1)[-1]
    if name in PLAIN or name in SHELL:
        return _variables(name, words)
    rule = _RULES.get(name)
    if rule is None:
        return f"{name} is none of the reading commands"
    odd = next((word for word in words[1:] if not _is_static(word)), None)
    if odd is not None:
        shown = odd.text.replace(COMPUTED, "...")
        return f"a computed word ({shown}) could be an option of {name}; write it out, quoted, or with ./ before it"
    return rule(words[1:])


def _is_static(word: Word) -> bool:
    """Whether it is no option but the one that it shows. What is behind a slash is none, whatever follows."""
    if word.several or (COMPUTED in word.text and not word.text.startswith(("/", "./"))):
        return False
    return not (word.pattern and word.text[:1] in tuple("*?[-+@!")) and not re.match(r"~[-+\d]|[@+!]\(", word.text)


def _variables(name: str, words: Sequence[Word]) -> str | None:
    if (why := _shell_odd(name, words[1:])) is not None:
        return why
    for each in _set_by(name, words[1:]):
        if COMPUTED in each:
            return "which variable it sets is computed"
        if not VARIABLES.fullmatch(each):
            return f"it sets {each}"
    return None


def _shell_odd(name: str, words: Sequence[Word]) -> str | None:
    """Why one of bash's own may do more than it shows: through a word that is an option, or one that it evaluates."""
    texts = [word.text for word in words]
    fixed = all(word.known for word in words)
    if name in _TAKE_NAMES and any(
        word.pattern and "=" not in word.text for word in words[: len(words) - (name == "[")]
    ):
        return "the names of files that fit could be options or variables; quote it"
    if any(re.fullmatch(r"\{[A-Za-z_]\w*(\[.*\])?\}", text) for text in texts):
        return "which variable it sets is not told"
    if name in ("test", "["):
        return None if _is_plain_test(words[:-1] if name == "[" else words) else _TESTS
    if name == "let" and not all(re.fullmatch(r"[\d+*/%() -]+", text) for text in texts):
        return "what let evaluates may run something; only numbers may stand there"
    if name in ("wait", "jobs", "shopt") and not (fixed and re.fullmatch(_PLAIN_OPTIONS[name], " ".join(texts))):
        return f"{name} may do more than look with these words"
    if name == "set":
        until = texts.index("--") if "--" in texts else len(texts)
        options = all(word.known and not word.pattern for word in words[:until])
        if not options or not re.fullmatch(_PLAIN_OPTIONS[name], " ".join(texts[:until])):
            return "set may do more than look with these words; put -- before values"
    if name == "printf" and words and (words[0].several or words[0].pattern or words[0].text.startswith(COMPUTED)):
        return "its format is computed; write printf '%s' before it"
    if name in _DECLARES:
        if any(re.match(r"[-+]\w*i", text) for text in texts):
            return "a variable that is a number evaluates what it is set to"
        if any(re.match(r"[^=]*=(.*\0|\()", text, re.DOTALL) for text in texts):
            return f"{name} may evaluate what it sets; set the variable without it"
    return None


_TESTS = "what it tests is computed or may be evaluated; quote its values, test one thing at a time, without -v"
_PLAIN_OPTIONS: Mapping[str, str] = {
    "wait": r"(-n)?[\d %]*",
    "jobs": r"(-[lprs]+)?",
    "shopt": r"(-[su] )?((globstar|nullglob|dotglob|failglob|nocaseglob|nocasematch) ?)*",
    "set": r"([-+][euxfvn]+ ?|[-+][euxfvn]*o (pipefail|errexit|nounset|noglob|xtrace) ?)*",
}


def _is_plain_test(words: Sequence[Word]) -> bool:
    """Whether no computed word of it could be an operator, and none looks up a variable by its name."""
    if all(word.known for word in words):
        follows = zip([word.text for word in words], [word.text for word in words[1:]] + [""], strict=True)
        return not any(text in ("-v", "-R") and not re.fullmatch(r"[A-Za-z_]\w*", then) for text, then in follows)
    if any(word.several for word in words):
        return False
    rest = words[1:] if words[0].text == "!" and len(words) > 1 else words
    match [word.text for word in rest]:
        case [_]:
            return True
        case [operator, _]:
            return re.fullmatch(r"-[a-zA-Z]", operator) is not None and operator not in ("-v", "-R")
        case [_, operator, _]:
            return re.fullmatch(r"[!=]?=|[<>]|-(eq|ne|lt|le|gt|ge|nt|ot|ef)", operator) is not None
    return False


def _set_by(name: str, words: Sequence[Word]) -> Iterator[str]:
    """Names of the variables that one of bash's own commands sets, or may set."""
    texts = [COMPUTED if word.several else word.text for word in words]
    if name == "printf":
        yield from (text[2:] or following for text, following in pairwise([*texts, ""]) if text.startswith("-v"))
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
                yield name.rstrip("+")


def _given(texts: Sequence[str], letters: str, *long: str) -> str | None:
    """The first that is one of the letters, alone or among others, or one of the long ones, abbreviated or not.
    Those behind `--` too: that may be the value of an option."""
    for text in texts:
        name = text.partition("=")[0]
        if text.startswith("--"):
            if text != "--" and any(each.startswith(name) or name.startswith(each) for each in long):
                return name
        elif text.startswith("-") and any(letter in text[1:] for letter in letters):
            return text
    return None


def _without(letters: str, *long: str) -> Rule:
    def rule(words: Sequence[Word]) -> str | None:
        found = _given([word.text for word in words], letters, *long)
        return f"its option {found} may write or run something" if found else None

    return rule


def _only(form: str, why: str) -> Rule:
    """Their words, each with a blank before it, must be of this form."""
    compiled = re.compile(form)

    def rule(words: Sequence[Word]) -> str | None:
        spaced = any(re.search(r"\s", word.text) for word in words)
        return None if not spaced and compiled.fullmatch("".join(f" {word.text}" for word in words)) else why

    return rule


def _one_operand(flags: str, valued: str) -> Rule:
    """A second one would be where it writes."""

    def rule(words: Sequence[Word]) -> str | None:
        texts, operands = [word.text for word in words], 0
        at = 0
        while at < len(texts):
            if operands or texts[at] == "-" or not texts[at].startswith("-"):
                operands += 1
            elif texts[at] == "--":
                operands += len(texts) - at - 1
                break
            elif re.fullmatch(valued, texts[at]):
                at += 1
            elif not re.fullmatch(flags, texts[at]):
                return f"its option {texts[at]} is none of the plain ones"
            at += 1
        if operands > 1 or any(word.pattern for word in words):
            return "its second operand is a file that it writes (put options before the file)"
        return None

    return rule


def _date(words: Sequence[Word]) -> str | None:
    at = 0
    while at < len(words):
        text = words[at].text
        if text in ("-d", "-r", "--date", "--reference"):
            at += 1
        elif not re.match(
            r"\+|-[uR]+$|-I|-[dr].|--(date|reference|rfc-3339)=|--(utc|universal|iso-8601|rfc-email)", text
        ):
            return f"with {text} it may set the clock"
        at += 1
    return None


def _find(words: Sequence[Word]) -> str | None:
    found = next((word.text for word in words if word.text in _FIND_WRITES), None)
    return f"its {found} may write" if found else None


_RULES: Mapping[str, Rule] = {
    "find": _find,
    "sed": why_sed_writes,
    "awk": why_awk_writes,
    "gawk": why_awk_writes,
    "mawk": why_awk_writes,
    "git": why_git_writes,
    "sort": _without("oT", "--output", "--compress-program", "--temporary-directory"),
    "tree": _without("oR"),
    "file": _without("C", "--compile"),
    "date": _date,
    "env": _only("", "it may run something"),
    "hostname": _only("", "it may set the name"),
    "uniq": _one_operand(
        r"-[cdDiuz]+|-[cdDiuz]*[fsw]\d+|--(count|repeated|unique|ignore-case|zero-terminated|all-repeated(=\w+)?"
        r"|group(=\w+)?|(skip-fields|skip-chars|check-chars)=\d+)",
        r"-[cdDiuz]*[fsw]",
    ),
    "xxd": _one_operand(r"-(a|b|e|i|p|ps|u|r|C|d|E|[clsgo][-+]?\w+)", r"-[clsgo]"),
    "rg": _without("", "--pre", "--hostname-bin"),
    "tar": _only(
        r"( -?[zjJv]*t[zjJvf]*| --list)( (-[zjJvtf]+|--(verbose|gzip|bzip2|xz|file|list)|(--file=)?[^-:\s][^:\s]*))*",
        "only tar -t lists, with an archive of this machine",
    ),
    "unzip": _only(r" (-l|-v|-Z1?)( [^-\s]\S*)*", "it may unpack"),
}
