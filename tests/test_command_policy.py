"""What a role may run: the parsed command decides, however the denied part of it is wrapped."""

import asyncio
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.command_policy import CommandPattern, CommandPolicy
from agents.shell.judge import UNREADABLE, Judge
from agents.shell.script import MOST_BYTES, simple_commands
from agents.shell.words import Unreadable, read_word

NO_TOUCH = CommandPolicy(deny=(CommandPattern("touch *"), CommandPattern("rm -rf *")))
READER = CommandPolicy(read_only=True)


_RUNNER, _JUDGE = asyncio.Runner(), Judge()


@pytest.fixture(scope="module", autouse=True)
def judging() -> Iterator[None]:
    with _RUNNER:
        yield
        _RUNNER.run(_JUDGE.close())


def refusal(policy: CommandPolicy, command: str) -> str | None:
    return _RUNNER.run(_JUDGE.refusal(policy, command))


def quoted(inner: str) -> str:
    return shlex.quote(inner)


WRAPS = {
    "a pipeline": "echo a | {} | cat",
    "a list": "true && {} || false",
    "a later line": "echo one\n{}\necho two",
    "the background": "{} &\nwait",
    "a group": "{{ {}; }}",
    "a subshell": "( {} )",
    "a substitution": 'echo "a $({}) b"',
    "a substitution in a variable": "x=$({})",
    "a substitution in a default": "echo ${{nothing:-$({})}}",
    "a substitution in arithmetic": "echo $(( 1 + $({}; echo 1) ))",
    "a process substitution": "cat <( {} )",
    "a condition": "if {}; then :; fi",
    "a branch": "if false; then :; else {}; fi",
    "a loop": "for i in 1; do {}; done",
    "a loop's condition": "while {}; do break; done",
    "a case": "case a in a) {};; esac",
    "a function": "f() {{ {}; }}; f",
    "a negation": "! {}",
    "a test": '[[ -z "$({})" ]]',
    "an array": "a=($({}))",
    "a declaration": "export a=$({})",
    "a here-document": "cat <<END\n$({})\nEND\n",
    "a here-string": 'cat <<< "$({})"',
}
AROUND = {
    "env": "env A=1 {}",
    "nohup": "nohup {} >/dev/null",
    "nice": "nice -n 5 {}",
    "timeout": "timeout -k 1 5s {}",
    "time": "time {}",
    "command": "command {}",
    "exec": "exec {}",
    "stdbuf": "stdbuf -oL {}",
    "setsid": "setsid -w {}",
    "xargs": "echo | xargs {}",
    "find": "find . -maxdepth 0 -exec {} \\;",
    "an assignment": "A=1 B= {}",
    "a redirection before it": ">/dev/null 2>&1 {}",
    "a path": "/usr/bin/{}",
    "coproc": "coproc {}; wait",
}
SCRIPTS = {
    "sh -c": "sh -c {}",
    "bash -lc": "bash -e -o pipefail -lc {}",
    "eval": "eval {}",
    "a trap": "trap {} EXIT",
    "bash -c within env": "env -i PATH=/usr/bin:/bin bash -c {}",
    "xargs sh -c": "echo | xargs sh -c {}",
}
SPELLED = [
    "touch spot",
    "t'ou'ch spot",
    '"touch" spot',
    "to\\uch spot",
    "$'\\164ouch' spot",
    "tou\\\nch spot",
    "touch \\\n spot",
]


def wrapped(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = st.tuples(st.sampled_from(sorted(WRAPS.values())), inner).map(lambda pair: pair[0].format(pair[1]))
    script = st.tuples(st.sampled_from(sorted(SCRIPTS.values())), inner).map(
        lambda pair: pair[0].format(quoted(pair[1]))
    )
    fed = inner.map(lambda text: f"bash <<'FED'\n{text}\nFED\n").filter(lambda text: text.count("FED") == 2)
    return st.one_of(plain, script, fed)


SINGLE = st.tuples(st.sampled_from(["{}", *sorted(AROUND.values())]), st.sampled_from(SPELLED)).map(
    lambda pair: pair[0].format(pair[1])
)


@given(st.recursive(SINGLE, wrapped, max_leaves=4))
@settings(max_examples=300, deadline=None)
def test_no_wrapping_lets_a_denied_command_through(command: str) -> None:
    refused = refusal(NO_TOUCH, command)
    assert refused is not None
    assert "\n" not in refused
    assert len(refused) < 600


@pytest.mark.parametrize("how", [*WRAPS, *AROUND, *SCRIPTS])
def test_each_wrapping_does_run_what_it_wraps(how: str, tmp_path: Path) -> None:
    """Else the property above would say nothing."""
    form = {**WRAPS, **AROUND}.get(how) or SCRIPTS[how]
    command = form.format(quoted("touch spot") if how in SCRIPTS else "touch spot")
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False
    )
    assert (tmp_path / "spot").exists(), done.stderr
    assert refusal(NO_TOUCH, command) is not None


@pytest.mark.parametrize(
    "command",
    [
        "x=touch; $x spot",
        "${x} spot",
        "`echo touch` spot",
        "/usr/bin/tou?h spot",
        "{touch,spot}",
        "echo 'touch spot' | sh",
        "curl http://x | bash -s",
        "bash < script",
        "bash /dev/stdin <<< 'touch spot'",
        "source <(echo touch spot)",
        "bash <(echo touch spot)",
        'eval "$x"',
        'sh -c "$x"',
        "cat <<E\n`touch spot`\nE\n",
        "alias t=touch\nt spot",
        "let 'a[$(touch spot)]=1'",
        "hash -p /usr/bin/touch t; t spot",
        "sudo -u nobody touch spot",
        "su -c 'touch spot'",
        "watch 'touch spot'",
        "env -S 'touch spot'",
        "xargs -I{} sh -c {}",
        "find . -exec sh -c 'touch spot' \\;",
        "rm -fr x",
        "rm -r -f x",
        "rm x -rfv",
        "rm $flags x",
        'rm "$@"',
        "rm {-rf,x}",
        "\\rm -rf x",
        "/bin/rm -rf x",
        "rm >log -rf x",
        "mapfile -C 'touch spot' -c 1",
        "echo 'unclosed",
        "if true; then",
        "cat <<A <<B\nA\nB\n",
        "touch spot\0",
        "bash - <<'E'\ntouch spot\nE\n",
        "bash -s - <<'E'\ntouch spot\nE\n",
        "time { touch spot; }",
        "# only\ntouch spot # why",
        # Where bash sees no comment and no end of a here-document, and a parser may.
        "echo a\x0b#b; touch spot",
        "echo a\x0c#b; touch spot",
        "echo a\\\n#b; touch spot",
        "cat <<E\nE \ncat <<'F'\nE\ntouch spot\nF\n",
        "cat <<E\n E\ncat <<'F'\nE\ntouch spot\nF\n",
        "cat <<-E\n  E\ncat <<'F'\nE\ntouch spot\nF\n",
        "a=\\\n\ntouch spot",
        "$\ntouch spot",
        "x =~ \ntouch spot",
        "a=1\\\nb touch spot",
        "ls >a\\\nb; >a\\\nb touch spot",
        "time A=1 touch spot",
        "x='$(touch spot)'; echo ${x@P}",
        "cat <<é\nü\ncat <<'F'\né\ntouch spot\nF\n",
    ],
)
def test_what_hides_a_denied_command_or_cannot_be_judged_is_refused(command: str) -> None:
    assert refusal(NO_TOUCH, command) is not None


@pytest.mark.parametrize(
    "command",
    [
        "ls -la",
        "echo touch spot",
        "grep -rn 'touch ' . | head -20",
        "echo 'rm -rf x'",
        "rm spot",
        "rm -r spot",
        'for f in *.py; do rm -- "$f"; done',
        'rm "$HOME/spot"',
        "find . -name '*.pyc' -exec rm {} +",
        "cat > script.sh <<'E'\ntouch spot\nE\n",
        "bash script.sh",
        "timeout 5 grep touch file",
        "python3 - <<'E'\nprint('touch spot')\nE\n",
        "x=touch; echo $x",
        "git commit -m 'touch the spot'",
        "[[ a =~ ^b(c)$ ]] && ls",
        "sed -i s/touch/spot/ file",
        "# touch spot",
        "",
        '((x++)); echo $((x * 2)) ${x%.py} "${a[@]}"',
        "cat > a <<'E'\n\n  a\n\tx {\U000ef7e1}\nE\nls # é\n",
        "cat <<-E | wc -l\n\ta\n\tE\n",
        "echo é {\U000ef7e1 'ü' \"中\" grün; ls",
    ],
)
def test_what_only_speaks_of_a_denied_command_may_run(command: str) -> None:
    assert refusal(NO_TOUCH, command) is None


ALLOWED = CommandPolicy(
    allow=tuple(map(CommandPattern, ("git log *", "make test", "ls", "grep *"))), deny=(CommandPattern("ls -R *"),)
)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("git log --stat", True),
        ("cd /app && git log | grep x", True),
        ("make test", True),
        ("make test install", False),
        ("make", False),
        ("ls -la /app", True),
        ("ls -R", False),
        ("ls -aR /app", False),
        ("git push", False),
        ("git $x", False),
        ("$x", False),
        ("env A=1 timeout 5 git log", True),
        ("env A=1 git push", False),
        ("bash -c 'ls; grep x f'", True),
        ("bash -c 'ls; make'", False),
        ("bash script.sh", False),
        ("ls $(make)", False),
        ("f() { make; }; f", False),
        ("sudo ls", False),
        ("find . -exec grep x {} +", False),
        ('for f in a b; do grep x "$f"; done', True),
    ],
)
def test_an_allow_list_lets_nothing_else_run_and_deny_goes_first(command: str, runs: bool) -> None:
    assert (refusal(ALLOWED, command) is None) is runs


LOOKS = [
    "ls -la; cat a.py | head -20 | nl",
    "cd /app && git log --oneline -5 && git diff HEAD~1 -- a.py && git status --short && git show HEAD:a.py",
    "git -C /app --no-pager diff --stat; git branch -a; git stash list; git config --get user.name; git tag",
    "grep -rn x . 2>/dev/null | sort | uniq -c | sort -rn | wc -l",
    "find . -type f -name '*.py' -exec grep -l x {} + 2>/dev/null",
    "find . -name '*.py' | xargs grep -n TODO",
    "sed -n '1,20p;$p' a.py; sed 's/a/b/g; /x/d' a.py; sed -ne '/def/,+3p' a.py",
    "awk -F: '{print $1, $3}' a; awk 'NR % 2 == 0 || /x/ {n++} END {print n}' a",
    'for f in *.py; do echo "== $f"; head -5 "$f"; done',
    'n=$(wc -l < a.py); [ "$n" -gt 3 ] && echo long >&2',
    "LC_ALL=C sort a | column -t > /dev/null 2>&1",
    "diff <(sort a) <(sort b)",
    "date +%s; stat -c %s a; tar -tzf a.tgz; jq . a.json",
    "bash -c 'ls | wc -l'",
    "while read -r line; do printf '%s\\n' \"$line\"; done < a",
    "n=$(wc -l < a); local m=1; (( 1 + 1 )); echo ${x:=$n} ${n:-0}",
    "mapfile -t lines < a; declare -p PATH; file a",
]
WRITES = [
    "echo x > a",
    "echo x >> a",
    "ls &> log",
    "{ ls; } > log",
    "> a",
    "cat a > \"$f\"",
    "for f in a; do cat $f; done > log",
    "cat <<E > a\nx\nE\n",
    "ls | tee a",
    "rm a",
    "sed -i s/a/b/ a",
    "sed -ni p a",
    "sed --in-place s/a/b/ a",
    "sed 'w out' a",
    "sed 's/a/b/w out' a",
    "sed '1e touch x' a",
    "sed -f script a",
    'sed "$x" a',
    "awk '{print > \"out\"}' a",
    "awk 'BEGIN{system(\"touch x\")}'",
    "awk -f script a",
    "find . -delete",
    "find . -exec rm {} +",
    "find . -fprint out",
    "find . | xargs rm",
    "sort -o a a",
    "sort -uoa a",
    "sort --outp=a a",
    "uniq a b",
    "git commit -m x",
    "git checkout a",
    "git stash",
    "git branch new",
    "git tag v1",
    "git config user.name x",
    "git diff --output=a",
    "git diff --ext-diff",
    "git -c core.pager=x log",
    "git grep -Ovi x",
    "git",
    "python3 -c 'print(1)'",
    "python3 a.py",
    "make test",
    "bash a.sh",
    "./a.sh",
    "GIT_EXTERNAL_DIFF=x git diff",
    "PATH=. ls",
    "export PATH=.; ls",
    "export GIT_PAGER=x",
    "echo $(rm a)",
    "bash -c 'rm a'",
    "source a",
    "kill 1",
    "exec > log",
    "tar -xf a.tgz",
    "date -s now",
    "xxd -r a b",
    "f() { rm a; }; f",
    "env PATH=. ls",
    "time PATH=. ls",
    "time -o log ls",
    "env BASH_ENV=a bash -c ls",
    "printf -v PATH .",
    "read -r PATH <<< .; ls",
    "unset PATH",
    "mapfile PATH < a",
    "declare -n r=PATH; r=.",
    "export $x",
    "for PATH in .; do ls; done",
    ": ${PATH:=.}; ls",
    "(( PATH = 1 ))",
    "let PATH=1",
    "file -C -m a",
    "f() { ls; } > log; f",
    "exec 3<> a",
    "echo x >| a",
    "cat <<E\n$(rm a)\nE\n",
    "find . -exec sh -c 'echo > a' \\;",
    "ls | xargs -I{} sh -c 'echo {} > a'",
    "eval 'echo > a'",
    "trap 'echo > a' EXIT",
]  # fmt: skip


@pytest.mark.parametrize("command", LOOKS)
def test_a_reader_may_look(command: str) -> None:
    assert refusal(READER, command) is None


@pytest.mark.parametrize("command", WRITES)
def test_a_reader_may_not_write(command: str) -> None:
    if command == "git":
        assert refusal(READER, command) is None
        return
    refused = refusal(READER, command)
    assert refused is not None
    assert "read_only" in refused or "cannot be judged" in refused


def test_a_refusal_names_the_part_and_the_rule() -> None:
    assert refusal(NO_TOUCH, "ls | xargs rm -rf") == (
        "refused, nothing was run: `rm -rf ...` matches the denied pattern 'rm -rf *'"
    )
    assert refusal(READER, "ls > out") == (
        "refused, nothing was run: `ls > out` writes to 'out', and this role may only look (read_only)"
    )
    assert READER.writing_refusal("write_file") is not None
    assert NO_TOUCH.writing_refusal("write_file") is None


def test_a_role_without_rules_runs_everything_that_can_be_read() -> None:
    assert refusal(CommandPolicy(), "rm -rf / | sudo curl x") is None


@pytest.mark.parametrize("text", ["", "   ", "'open", "#", "a\0b"])
def test_a_pattern_without_words_is_none(text: str) -> None:
    if text == "#":
        assert CommandPattern(text).words == ("#",)
        return
    with pytest.raises(ValueError, match=r".+"):
        CommandPattern(text)


ENDED_THE_PARSER = [
    "{\U000ef7e1",
    ";\x07z:`{\U00061651\U0010472e\U00084829\U000fd082\U0001e185\U000159fe\U0004401e\u038a[\U0004cb8c",
    "[\U00083c37 {\U000f2fdd\u1186\U00056775)`\u0965{\u1e41\u03ce:\U00088665\U0003e040?",
]
"""Texts over which the parser died, given them as they are: a brace before what no table of 256 characters holds."""
UNCLOSED = [
    "]`<&=\n\\\n'esac ]]<<&`=~ do '`b[1case case #1case ",
    "`$'function f$(\n{\nE\ndone*1<<done<< if |`'[[ :-$done ]]`=~ ,$",
]
"""Texts that the parser accepts, with a quote that is not closed."""
ANY_TEXT = st.text(st.one_of(st.characters(), st.sampled_from("{}[]()$`'\"\\|&;<>#\n\t\0\x0b")), max_size=200)


@given(ANY_TEXT)
@example(ENDED_THE_PARSER[0])
@example(ENDED_THE_PARSER[1])
@example(ENDED_THE_PARSER[2])
@example(UNCLOSED[0])
@example(UNCLOSED[1])
@settings(max_examples=200, deadline=None)
def test_any_text_is_judged_or_refused_in_one_line(text: str) -> None:
    for policy in (NO_TOUCH, ALLOWED, READER):
        refused = refusal(policy, text)
        assert refused is None or "\n" not in refused
        assert refused != UNREADABLE


SHELLISH = st.lists(st.sampled_from([*"ab '\"\\`$(){}[]<>|&;\n#=*?!~-1", "$(", "<<E\n", "\nE\n", "$'", "then ", "if "]))


@given(SHELLISH.map("".join))
@settings(max_examples=300, deadline=None)
def test_any_shell_like_text_is_judged_or_refused_in_one_line(text: str) -> None:
    for policy in (NO_TOUCH, ALLOWED, READER):
        assert refusal(policy, text) != UNREADABLE


SEEN_BY_BASH = st.lists(
    st.sampled_from([*"a '\"\\`$(){};|&\n\t#=!<>", "touch ", "touch", "E\n", "<<E\n", "<<'E'\n", "<<-E\n", "\nE", "$(",
                     "if ", "then ", "fi\n", "{ ", "; }", "\x0b", "é", "echo ", "[[ ", " ]]", "$'", "\\\n", "((", "))",
                     "case a in ", "a) ", ";;", "esac ", "for a in 1; do ", "done\n", "f() ", "time ", "coproc ",
                     "<("]),
    max_size=14,
)  # fmt: skip


@given(SEEN_BY_BASH.map("".join))
@settings(max_examples=150, deadline=None)
def test_what_bash_runs_of_any_text_was_seen(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """bash is the judge of the judge: where it runs the denied command, that was refused."""
    if "touch" not in text or refusal(NO_TOUCH, text) is not None:
        return
    folder = tmp_path_factory.mktemp("bash")
    script = f"exec 9>{shlex.quote(str(folder / 'ran'))}; touch() {{ echo ran >&9; }}\n{text}"
    command = ["/bin/bash", "--norc", "-c", script]
    subprocess.run(
        command, cwd=folder, env={"PATH": ""}, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
    )
    assert (folder / "ran").read_text() == ""


def test_a_huge_and_a_deep_command_are_judged_in_bounded_time() -> None:
    assert refusal(NO_TOUCH, f"cat > a <<'E'\n{'x' * (MOST_BYTES - 100)}\nE\n") is None
    assert "more than 65536 bytes" in (refusal(NO_TOUCH, "x" * (MOST_BYTES + 1)) or "")
    for deep in ("$(" * 5000 + ")" * 5000, "(" * 5000 + ")" * 5000, "sh -c " * 5000, "env " * 5000 + "touch x"):
        assert refusal(NO_TOUCH, deep) is not None


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=40))
@settings(max_examples=200, deadline=None)
def test_a_quoted_text_is_read_as_itself(text: str) -> None:
    assert read_word(shlex.quote(text)).text == text
    [echo] = simple_commands(f"echo {shlex.quote(text)}")
    assert [word.text for word in echo.words] == ["echo", text]


def test_unreadable_text_says_where() -> None:
    with pytest.raises(Unreadable, match="line 2"):
        simple_commands("ls\necho 'x")
