# The driver of one shell session: reads commands from fd 0, answers on fd 1 (one socket), runs each in a fresh bash.
#
#   at start  "ready\n"
#   request   "<token> <bytes> <seconds> <1 where a long output is kept, else 0>\n" + the command's bytes
#   reply     "<token> <exit code> <size> <length> <kept>\n" + the first <length> bytes of its output
#
# Arguments: a folder of its own for commands and state, with a folder out/ for outputs in it; the most bytes of output
# to return; the fewest bytes of a long output and the most of it to keep; then options of `ulimit`, two words each. Its
# environment is that of the first command, FULLCHAIN_CWD its working directory, FULLCHAIN_KEEP the folder in which long
# outputs are kept, empty for none.
#
# Exported variables and the working directory pass from command to command through a state file that each command's
# bash writes as it ends. The driver keeps a copy, so a deleted or torn file costs that command's changes alone.
# Nothing of the session is open in a command: no descriptor of the driver, stdin from /dev/null, and an output file
# per command, so that a background job cannot write into another command's output. stderr stays the driver's own: there
# bash says "fork: retry" where it can start no process, and goes on trying for longer than the other side can wait.
#
# A long output is copied to <FULLCHAIN_KEEP>/<kept>.txt once its command has ended, so nothing changes for the command
# itself: what a background job prints later is not in the copy. <kept> is 0 where there is none.

exec 200<&0 201>&1 </dev/null >/dev/null
d=$1 limit=$2 keep_from=$3 keep_most=$4
shift 4
umask 022
while [ $# -ge 2 ]; do ulimit "$1" "$2"; shift 2; done

home=$FULLCHAIN_CWD keep=$FULLCHAIN_KEEP
unset FULLCHAIN_CWD FULLCHAIN_KEEP OLDPWD PWD
printf -v state 'cd %q 2>/dev/null\n' "$home"
state+=$(export -p)$'\n''# whole'
for name in $(compgen -e); do
  # Stays in the environment of every process, so that a backend without process namespaces finds its own.
  [ "$name" = FULLCHAIN_SESSION ] || export -n "$name"
done
# A task may put folders of its own on PATH: the driver takes its programs from the system alone.
PATH=/usr/bin:/bin
LC_ALL=C
cd /

# Runs inside the command's bash. A command may end by `exit` or set an EXIT trap of its own: the state is written both
# after it and at exit. Tracing and stopping at errors are switched off first, or these lines would show or fail. All of
# it is made one line, so that bash's messages count the lines of the command from 1.
runner='
__fullchain_save() {
  [ -z "$__fullchain_saved" ] || return;
  __fullchain_saved=1;
  { builtin printf "cd %q 2>/dev/null\n" "$PWD"; builtin export -p; builtin printf "# whole"; } 2>/dev/null >"DIR/new";
};
builtin . "DIR/state" 2>/dev/null;
[[ $PWD -ef . ]] || builtin cd .;
IFS= builtin read -r -d "" __fullchain_command <"DIR/command";
trap "{ __fullchain_code=\$?; set +xeuv; trap - DEBUG ERR; } 2>/dev/null; __fullchain_save; exit \$__fullchain_code" EXIT;
eval "$__fullchain_command"; { __fullchain_code=$?; set +xeuv; } 2>/dev/null; __fullchain_save; exit $__fullchain_code'
runner=${runner//DIR/$d}
runner=${runner//$'\n'/ }

# Sets kept: one more than the highest number there is, so that no name is used twice; the tenth before it goes.
keep_output() {
  local path name
  kept=0
  [ -d "$keep" ] || mkdir -p -- "$keep" 200<&- 201>&- 2>/dev/null || return
  for path in "$keep"/*.txt; do
    name=${path##*/}
    name=${name%.txt}
    [[ $name =~ ^[1-9][0-9]{0,4}$ ]] && [ "$name" -gt "$kept" ] && kept=$name
  done
  kept=$((kept + 1))
  path=$keep/$kept.txt
  # Opened anew, so that the answer still begins at the first byte; bounded in time, since somebody waits for that answer.
  if [ -e "$path" ] || [ -L "$path" ] ||
    ! timeout -k 0.1 0.5 head -c "$keep_most" <"/dev/fd/203" 2>/dev/null >|"$path" 200<&- 201>&- 202>&-; then
    rm -f -- "$path" 200<&- 201>&- 2>/dev/null
    kept=0
  elif [ -f "$keep/$((kept - 10)).txt" ]; then
    rm -f -- "$keep/$((kept - 10)).txt" 200<&- 201>&- 2>/dev/null
  fi
}

n=0
printf 'ready\n' >&201
while IFS=' ' read -r -u 200 token bytes seconds keeps; do
  n=$((n + 1))
  out=$d/out/$n
  # A command may have taken away the folders' own permissions.
  [ -w "$d" ] && [ -x "$d" ] && [ -w "$d/out" ] && [ -x "$d/out" ] || chmod 700 "$d" "$d/out" 200<&- 201>&- 2>/dev/null
  if [ "$bytes" -gt 2048 ]; then
    # bash reads a socket byte by byte.
    head -c "$bytes" <&200 >|"$d/command" 200<&- 201>&- 2>/dev/null || exit 1
  else
    IFS= read -r -N "$bytes" -u 200 command
    printf '%s' "$command" >|"$d/command" || exit 1
  fi
  # Half a command or half a state must not run: where there is no room for it, the session ends.
  printf '%s\n' "$state" >|"$d/state" && : >|"$d/new" || exit 1
  exec 202>|"$out" 203<"$out" || exit 1

  timeout -k 0.5 "$seconds" bash --norc --noprofile -c "$runner" bash >&202 2>&1 200<&- 201>&- 202>&- 203<&-
  code=$?

  if [ -f "$d/new" ] && [ ! -L "$d/new" ]; then
    IFS= read -r -d '' -n 2000000 new <"$d/new"
    case $new in *$'\n# whole') state=$new ;; esac
  fi
  size=0
  [ -s /dev/fd/203 ] && size=$(stat -L -c %s /dev/fd/203 200<&- 201>&- 2>/dev/null)
  length=$size
  [ "$length" -gt "$limit" ] && length=$limit
  kept=0
  [ -n "$keep" ] && [ "$keeps" = 1 ] && [ "$size" -gt "$keep_from" ] && keep_output 2>/dev/null
  printf '%s %s %s %s %s\n' "$token" "$code" "$size" "$length" "$kept" >&201
  [ "$length" -eq 0 ] || head -c "$length" <&203 >&201 2>/dev/null
  exec 202>&- 203<&-
  # Frees the space without another process; a background job goes on writing into its own file.
  : >|"$out"
done
