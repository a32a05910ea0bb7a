"""git's commands that only look: which, and in which forms. What is not listed here is refused to a reader."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from agents.shell.words import Word, base_name, names

_READS = names(
    "log diff show status blame annotate grep ls-files ls-tree cat-file rev-parse rev-list describe shortlog "
    "merge-base name-rev show-ref for-each-ref diff-tree diff-index diff-files count-objects whatchanged cherry "
    "check-ignore var version show-branch"
)
_LONG = names(
    "abbrev abbrev-commit abbrev-ref absolute-git-dir after ahead-behind all all-match always ancestry-path anchored "
    "and author author-date-order basic-regexp batch-all-objects batch-check before binary boundary branch branches "
    "break-rewrites cached cc check cherry cherry-mark cherry-pick color color-moved color-words column "
    "combined-all-paths committer contains count cumulative date date-order decorate decorate-refs "
    "decorate-refs-exclude default deleted dense diff-algorithm diff-filter directory dirstat dirty disk-usage "
    "dst-prefix email encoding eol error-unmatch exact-match exclude exclude-from exclude-per-directory "
    "exclude-standard exit-code expand-tabs extended-regexp files-with-matches files-without-match find-copies "
    "find-copies-harder find-object find-renames first-parent fixed-strings follow fork-point format full-diff "
    "full-history full-index full-name full-tree function-context git-common-dir git-dir git-path glob graph grep "
    "grep-reflog head heading heads histogram human-readable ignore-all-space ignore-blank-lines ignore-case "
    "ignore-cr-at-eol ignore-matching-lines ignore-missing ignore-revs-file ignore-space-at-eol ignore-space-change "
    "ignore-submodules ignored incremental indent-heuristic independent inter-hunk-context invert-grep invert-match "
    "is-ancestor is-bare-repository is-inside-git-dir is-inside-work-tree is-shallow-repository killed left-only "
    "left-right line-number line-porcelain line-prefix long mailmap match max-age max-count max-depth max-parents "
    "merge-base merge-commits merged merges min-age min-parents minimal modified name-only name-rev name-status "
    "no-abbrev no-abbrev-commit no-color no-column no-decorate no-expand-tabs no-ext-diff no-graph no-index "
    "no-mailmap no-merged no-merges no-notes no-patch no-prefix no-relative no-rename-empty no-renames "
    "no-show-signature no-textconv no-walk not notes null numbered numstat object-only objects octopus oneline "
    "only-matching or others parents patch patch-with-stat patience perl-regexp pickaxe-all pickaxe-regex points-at "
    "porcelain pretty quiet raw recursive refs regexp-ignore-case relative relative-date remotes remove-empty reverse "
    "right-only root rotate-to score-debug short shortstat show-cdup show-current show-email show-function show-name "
    "show-number show-prefix show-pulls show-stash show-toplevel simplify-by-decoration since skip skip-to sort "
    "source sparse src-prefix stage staged stat stat-count summary symbolic symbolic-full-name tag tags text threads "
    "topo-order unified unmerged until untracked untracked-files use-mailmap verbose verify walk-reflogs word-diff "
    "word-diff-regex word-regexp ws-error-highlight"
)
"""Long options of those that only choose what is shown."""
_NAME = r"[A-Za-z0-9][\w./@{}~^:*-]*"
_SHOWN = r"--(no-color|color(=\w+)?|column|no-column|format=\S*|sort=-?[\w:]+)"
_PICKS = r"--(contains|no-contains|merged|no-merged|points-at)"
_FORMS: Final[Mapping[str, str]] = {
    "branch": rf"(( (-[avr]+|--all|--remotes|--verbose|--show-current|--list|-l|{_PICKS}|{_SHOWN}))*"
    rf"|( (-[avr]+|--all|--remotes|{_SHOWN}))*( --list( {_NAME})+|( {_PICKS}(=| ){_NAME})+))",
    "tag": rf"(( (-l|--list|-n\d*|{_PICKS}|{_SHOWN}))*"
    rf"|( (-n\d*|{_SHOWN}))*( (-l|--list)( (-n\d*|{_SHOWN}))*( {_NAME})+|( {_PICKS}(=| ){_NAME})+))",
    "remote": rf"( (-v|--verbose))?( show( -n)?( {_NAME})?| get-url( --all| --push)?( {_NAME}))?",
    "stash": rf"( list( (-n \d+|-\d+|--oneline|--stat|{_SHOWN}))*"
    r"| show( (-p|-u|--patch|--stat|--name-only|--name-status|--include-untracked|--no-color))*( stash@\{\d+\}| \d+)?)",
    "reflog": r"( show)?( (-n \d+|-n\d+|-\d+|--oneline|--date=\w+|--no-color|--all|HEAD(@\{\d+\})?))*",
    "config": r"( --(local|global|system|worktree|show-origin|show-scope|name-only|null))*"
    r"( (--list|-l)( --(show-origin|show-scope|name-only))*| --(get|get-all|get-regexp) [\w.*^$\\+-]+)",
    "worktree": r" list( --porcelain)?",
}
"""Their words, each with a blank before it."""

_GLOBAL_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--exec-path",
                  "--super-prefix", "--list-cmds")  # fmt: skip
_GLOBALS = re.compile(r"-P|--no-pager|--(git-dir|work-tree)(=.*)?|-C|--no-optional-locks|--literal-pathspecs")


def without_globals(words: Sequence[Word]) -> list[Word]:
    """`git -C /app --no-pager push x` as `git push x`: its name and the words from its own command on.
    Another command's as they are."""
    if not words or base_name(words[0]) != "git":
        return list(words)
    at = 1
    while at < len(words) and words[at].text.startswith("-") and not words[at].several:
        at += 2 if words[at].text in _GLOBAL_VALUES and words[at].text != "--exec-path" else 1
    return [words[0], *words[at:]]


def why_git_writes(words: Sequence[Word]) -> str | None:
    """Why git with these words, all static, is none that only looks; None where it is one."""
    texts = [word.text for word in words]
    if texts in (["--version"], ["--help"], []):
        return None
    at = 0
    while at < len(texts) and texts[at].startswith("-"):
        if not _GLOBALS.fullmatch(texts[at]):
            return f"git's option {texts[at]} may run something"
        at += 2 if texts[at] in ("-C", "--git-dir", "--work-tree") else 1
    if at >= len(texts):
        return "git's command is missing"
    name, rest = texts[at], texts[at + 1 :]
    if name in _FORMS:
        formed = ["--format=" if each.startswith("--format=") else each for each in rest]
        said = "".join(f" {each}" for each in formed)
        if not any(re.search(r"\s", each) for each in formed) and re.fullmatch(_FORMS[name], said):
            return None
        return f"git {name}{_first(rest)} is none of the forms that only list"
    if name not in _READS:
        return f"git {name} is none of the reading ones"
    odd = next((each for each in rest if not _reads(name, each)), None)
    return f"git {name}'s option {odd} is none of the plain reading ones" if odd else None


def _first(rest: Sequence[str]) -> str:
    return "".join(f" {each}" for each in rest[:2])


def _reads(name: str, word: str) -> bool:
    if word.startswith("--") and word != "--":
        return word[2:].partition("=")[0] in _LONG
    return not (name == "grep" and word.startswith("-") and "O" in word)
