"""What a reader may run: commands that only look, and none that a computed word, an expression or a form turns over."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.command_policy import CommandPattern, CommandPolicy
from agents.shell.judge import Judge
from agents.shell.script import simple_commands
from agents.shell.words import read_word

READER = CommandPolicy(read_only=True)
NO_TOUCH = CommandPolicy(deny=(CommandPattern("touch *"),))
NO_PUSH = CommandPolicy(deny=(CommandPattern("git push *"),))

_RUNNER, _JUDGE = asyncio.Runner(), Judge()


@pytest.fixture(scope="module", autouse=True)
def judging() -> Iterator[None]:
    with _RUNNER:
        yield
        _RUNNER.run(_JUDGE.close())


def refusal(policy: CommandPolicy, command: str) -> str | None:
    return _RUNNER.run(_JUDGE.refusal(policy, command))


COMPUTED_OPTIONS = """
x=-delete; find sub $x
x='-exec touch new ;'; find . -maxdepth 0 $x
find . -maxdepth 0 {-exec,touch,new,';'}
find sub {"}",-delete}
find sub "$x"
find . -maxdepth 0 -exec sort + -o new \\;
find * -print
x='-o new'; sort $x f
sort "$x" f
sort {-o,new} f
sort -{o,o} f
sort "-${x:-o}" new f
sort -k -- -o new f
sort $(echo -onew) f
sort *
sort -?
sort ~-
sed s/b/X/ {-i,f}
x=-i; sed s/b/X/ $x f
sed s/b/X/ "-${x:-i}" f
sed -n 1p *
x=--output=new; git log $x
git diff "--out${x:-put=new}"
git log {--output=new,-p}
git log -n -- "$x"
x='.git -c core.fsmonitor=touch$IFS./new'; git --git-dir $x status
x='a.tar --checkpoint=1 --checkpoint-action=exec=touch${IFS}new'; tar tf $x
tar tf {a.tar,'-Ish -c "touch new"'}
x=', -f -'; echo 'BEGIN{print "x" > "new"}' | awk -F $x 1
awk 1 "$x"
uniq "$x" f
uniq *
xxd $x
date $x
rg $x f
tree $x
file $x
unzip -l $x
env $x
wait $x
set $x
printf "$x" 1
printf $x 1
printf * 1
unset a*
[ * ]
[ -n * ]
let *
read *
set *
sort @(-onew) f
shopt $x
echo -delete | xargs find sub
echo -i | xargs sed s/b/X/ f
echo -i | xargs -I% sed s/b/X/ % f
echo -onew | xargs sort f
echo -onew | xargs -I{} sort {} f
echo --output=new | xargs git log
echo f -new | xargs uniq --
echo a | xargs awk 1
echo a | xargs tar tf
"""
FORMS = """
uniq -- f -new
uniq f -- -new
uniq -f 1 f new
uniq --skip-fields 1 f new
uniq f -f 1
xxd f new
xxd -c 8 f new
xxd -r -p f new
xxd -- f new
tar t '-Ish -c "touch new"' < a.tar
tar -tf a.tar -I sh
tar -tf a.tar --to-command=sh
tar tf host:a.tar
tar xf a.tar
unzip -l a -o
date 010203042020
date -s now
date --se=now
tree -o new
env A=1
jobs -x touch new
set -k
shopt -s extglob
wait -p PATH
ls {PATH}>/dev/null
ls {b[x]}>/dev/null
find -files0-from f -delete
git branch --no-track evil
git branch --no-color evil
git branch -a evil
git branch --format=x evil
git branch '--format=x' -D master
git branch --list --no-list evil
git branch -m evil
git tag --no-sign evil
git tag --no-column evil
git tag -l -d x
git tag evil
git config --no-includes user.name evil
git config --no-show-origin user.name evil
git config --get-all x --add user.x y
git config --get x y --unset z
git config --edit
git config set a.b c
git remote --no-verbose add x /tmp
git remote -v add x /tmp
git remote show --x
git remote set-url x y
printf 'y\\ny\\ny\\n' | git stash -p
git stash -p list
git stash pop
git stash show --x
git reflog -5 expire --all
git reflog show --output=new
git worktree add new
git log --output new
git log --outp=new
git log --ext-diff
git log --show-signature
git cat-file --filters HEAD:f
git grep -nOtouch x
git -c alias.x='!touch new' x
git --exec-path=. log
git -p log
git submodule status
sed 's/[/]/;s,a,/w new,' f
sed -n '/[/]p;w new;/p' f
sed 's/a/b/e' f
sed 's/a/b/w new' f
sed 's/a/b/;w new' f
sed '1{w new
}' f
sed 's,[,],/,w new,' f
sed 's/a\\
/w new/' f
sed '$!W new' f
sed 'y/a/b/;w new' f
sed '1r f' f
sed '1a\\' -e 'w new' f
sed --expression='w new' f
sed -e'w new' f
sed -n -- 1p f
sed s/a/b/ f -i
awk 'BEGIN{print "x" | "sh"}'
awk -i inplace 1 f
awk 1 f -f g
awk 'BEGIN{sys\\
tem("touch new")}'
"""
EXPRESSIONS = """
x='a[$(touch new)]'; echo $((x))
x='a[$(touch new)]'; echo $[x]
x='a[$(touch new)]'; ((x)); true
x='a[$(touch new)]'; echo "$(( $x + 1 ))"
x='a[$(touch new)]'; if ((x)); then :; fi
x='a[$(touch new)]'; [[ x -eq 0 ]]
x='a[$(touch new)]'; [[ $x -eq 0 ]]
x='a[$(touch new)]'; [[ 0 -lt x ]]
x='a[$(touch new)]'; [[ a == a && ! ( 1 -ge x ) ]]
x='a[$(touch new)]'; let x
x='a[$(touch new)]'; test -v "$x"
x='a[$(touch new)]'; [ -v "$x" ]
x='a[$(touch new)]'; [ "$x" ] && [ -n "$x" -a -v "$x" ]
o=-v; x='a[$(touch new)]'; [ "$o" "$x" ]
o=-v; x='a[$(touch new)]'; test $o "$x"
x='-v a[$(touch${IFS}new)] -o'; [ $x 1 ]
x='a[$(touch new)]'; [[ -v $x ]]
x='a[$(touch new)]'; [[ -R $x ]]
x='a[$(touch new)]'; unset "$x"
x='a[$(touch new)]'; echo ${f:x}
x='a[$(touch new)]'; f=abc; echo "${f:0:x}"
x='a[$(touch new)]'; echo ${!x}
x='a[$(touch new)]'; b=(1 2); echo ${b[x]}
x='a[$(touch new)]'; b=(1 2); echo ${#b[$x]}
x='a[$(touch new)]'; b[x]=1
x='a[$(touch new)]'; b=([x]=1)
x='a[$(touch new)]'; declare b[x]=1
x='a[$(touch new)]'; read b[x] < f
x='a[$(touch new)]'; printf -v b[x] 1
y='$(touch new)'; declare "x[$y]=1"
y='$(touch new)'; declare -A x; test -v "x[$y]"
y='($(touch new))'; q=(); declare q="$y"
y='($(touch new))'; q=(); export q=$y
x='a[$(touch new)]'; declare 'q=([$x]=1)'
x='a[$(touch new)]'; declare -i z=x
x='a[$(touch new)]'; local -ri z=x
x='a[$(touch new)]'; declare -i z; z=x
x='a[$(touch new)]'; for ((i=x;i<1;i++)); do :; done
"""


def listed(text: str) -> list[str]:
    """One a line; a line that leaves a quote open goes on."""
    found: list[str] = []
    open_quote = False
    for line in text.strip("\n").split("\n"):
        if open_quote:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
        open_quote ^= line.count("'") % 2 == 1
    return found


@pytest.mark.parametrize("command", listed(COMPUTED_OPTIONS))
def test_a_word_that_could_be_an_option_is_refused_to_a_reader(command: str) -> None:
    assert refusal(READER, command) is not None


@pytest.mark.parametrize("command", listed(FORMS))
def test_a_form_that_is_not_plainly_a_look_is_refused_to_a_reader(command: str) -> None:
    assert refusal(READER, command) is not None


@pytest.mark.parametrize("command", listed(EXPRESSIONS))
def test_an_expression_that_evaluates_a_variable_is_refused_to_a_reader(command: str) -> None:
    assert refusal(READER, command) is not None


LOOKS = r"""
git log -p -n 3
git log --oneline -5
git log --format='%h %an %s' -n 3
git log --since=2020-01-01 --author=x --stat
git log -L1,2:f
git log --graph --all --decorate --oneline
git log -S more -- f
git log HEAD~0..HEAD
git diff HEAD -- f
git diff HEAD -- '*.py' | head -200
git diff --stat --cached
git diff --name-only HEAD
git diff -U10 --no-color
git show HEAD:f
git show --stat HEAD
git show --name-status --pretty=format: HEAD
git status --short
git status --porcelain -b
git blame -L 1,2 f
git grep -n b
git ls-files | head
git ls-tree -r HEAD
git rev-parse --abbrev-ref HEAD
git rev-parse --show-toplevel
git rev-list --count HEAD
git describe --tags --always
git shortlog -sn HEAD
git branch
git branch -a
git branch -vv
git branch --show-current
git branch --contains HEAD
git branch --list 'm*'
git branch -r --sort=-committerdate --format='%(refname) %(subject)'
git tag
git tag -l 'v*'
git tag -n1
git tag --list --sort=-creatordate
git remote -v
git remote
git stash list
git config --get user.name
git config --list --show-origin
git config -l
git reflog -n 3
git worktree list
git -C . --no-pager diff
git cat-file -p HEAD
ls -la *
cat $f f
for x in *; do wc -l "$x"; done
for x in *; do sort "./$x" | head -1; done
grep -rn "b" . --include='*.py'
grep -rn "$pattern" .
grep -c b f g
head -n 5 f; tail -n +2 f; nl f
find . -name '*.py' -type f
find . -type f -size +1k -not -path './.git/*' -print0 | xargs -0 grep -l b
find . -name f -exec sed -n 1,5p {} \;
find . -name '*.txt' -exec wc -l {} +
find . -maxdepth 2 -newer f | sort | head
sed -n '1,40p' f
sed -n 3,5p f
sed -n '/def foo/,/^}/p' f
sed -n '10,20p;30q' f
sed -E 's/[[:space:]]+$//; s|a|b|g' f
sed 's/[^a-z]*//g' ./*
sed -e 1d -e '$d' f
sed -n '$=' f
awk '{print $1}' f
awk -F: '{print $1, $3}' f
awk 'NR==2' f
awk -v n=2 'NR==n {print; exit}' f
awk '{n += $1} END {print n}' f
cat f | sort | uniq -c | sort -rn | head
sort -t: -k1,1 -u f
uniq -f 1 f
uniq -c -w 3 f
uniq -d < f
xxd -c 8 f
xxd -l 16 -s 2 -g 1 f
xxd f | head
tar -tf a.tar
tar tvf a.tar | head
tar --list --file=a.tar
date
date +%s
date -u -d yesterday '+%F %T'
diff -u f g
diff <(sort f) <(sort g)
stat -c %s f; file f; du -sh .
env | sort | head -3
x=$(wc -l < f); echo "$x lines"; [ "$x" -gt 3 ] && echo big
[ -f f ] && test -r f && [[ -d sub ]]
[[ -z $x || $x == a* ]] && echo $(( 3 * 4 ))
[ $? -eq 0 ] && [ $# -eq 0 ] && [ ${#x} -lt 3 ]
[ -n "$x" ] || [ ! -e "$x" ] || [ "$x" = y ]
while read -r line; do printf '%s\n' "$line"; done < f
a=(x y); echo "${a[@]}" ${#a[@]} ${a[0]} ${x:0:2} ${x%.py} ${x:-1}
set -euo pipefail; ls | head
cd sub && pwd && ls
LC_ALL=C sort f | column -t
"""
HONEST = LOOKS.strip("\n").split("\n")


@pytest.mark.parametrize("command", HONEST)
def test_an_honest_look_passes(command: str) -> None:
    assert refusal(READER, command) is None


def test_no_honest_look_changes_a_file(tmp_path: Path) -> None:
    def run(script: str) -> str:
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=30, check=False,
        )  # fmt: skip
        return done.stdout

    run("printf 'b\\na\\n' > f; printf 'c\\n' > g; mkdir sub; tar cf a.tar g; git init -q .; git add f")
    run("git -c user.name=a -c user.email=a@b commit -qm x; echo more >> f")
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    assert len(before) > 10
    assert "+more" in run("git diff HEAD -- f")
    run("\n".join(f"( {each}\n)" for each in HONEST))
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before


@pytest.mark.parametrize(
    "command",
    ["python -m pytest", "python3 -c 'print(1)'", "make", "less f", "vim f", "ls | tee f", "git fetch", "sh f"],
)
def test_what_runs_or_writes_is_no_look(command: str) -> None:
    assert refusal(READER, command) is not None


@pytest.mark.parametrize(
    "command",
    [
        "echo `echo \\`touch new\\``",
        "echo `ls`",
        'echo "a `ls` b"',
        "cat <<E\n`ls`\nE\n",
        "echo \"${x:-'$(touch new)'}\"",
        "echo ${x:-`touch new`}",
        'echo "${x:-\'}"; touch new; echo "\'}"',
        "echo $(( '$(touch new)' ))",
        "a['$(touch new)']=1",
        "env -S 'touch new'",
        "env -S'touch new'",
        "env -vS'touch new'",
        "env -iS 'touch new'",
        "env -i0vS 'touch new'",
        "env --split-string='touch new'",
        "env --split='touch new'",
        "env --s 'touch new'",
        "sudo env -S'touch new'",
        "find . -exec env -S'touch new' \\;",
        "jobs -x touch new",
        "compgen -C 'touch new' x",
        "echo new | xargs -I% touch %",
        "echo touch | xargs -I% env % new",
    ],
)
def test_what_hides_a_command_is_refused_under_any_policy(command: str) -> None:
    assert refusal(NO_TOUCH, command) is not None
    assert refusal(READER, command) is not None


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("git push", False),
        ("git push origin main", False),
        ("git -C . push", False),
        ("git --no-pager push --force", False),
        ("git -c a.b=c --git-dir=x push", False),
        ("git --git-dir x --work-tree y push", False),
        ("git $x push", False),
        ('git -C "$x" push', False),
        ("sudo git -C /app push", False),
        ("git -C push status", True),
        ("git log --grep push", True),
        ("git stash push", True),
        ("echo git push", True),
    ],
)
def test_a_pattern_sees_git_without_its_global_options(command: str, runs: bool) -> None:
    assert (refusal(NO_PUSH, command) is None) is runs


def test_an_allowed_git_command_is_matched_as_it_is_written() -> None:
    allowed = CommandPolicy(allow=(CommandPattern("git log *"),))
    assert refusal(allowed, "git log -3") is None
    assert refusal(allowed, "git -c core.pager=x log") is not None


@given(st.lists(st.sampled_from(["{", "}", '"}"', "'}'", "\\}", ",", "..", "a", "-o", "$x"]), max_size=8).map("".join))
@settings(max_examples=150, deadline=None)
def test_braces_that_bash_expands_are_several_words(raw: str) -> None:
    said = subprocess.run(
        ["bash", "-c", f"x=x; f() {{ echo $#; }}; f {raw}"], capture_output=True, text=True, timeout=20, check=False
    ).stdout
    if said.strip() not in ("", "0", "1"):
        assert read_word(raw).several


def test_the_words_of_a_test_are_read_one_by_one() -> None:
    [test] = simple_commands('[ "$x" -gt 3 ]')
    assert [word.text for word in test.words] == ["[", "\0", "-gt", "3", "]"]
