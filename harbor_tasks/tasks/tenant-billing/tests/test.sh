#!/bin/bash
# The braces make bash read all of it first: the code under test could cut this file short.
{
mkdir -p /logs/verifier
echo 0 >/logs/verifier/reward.txt
reward=0
# A sandbox has processes of its own, and all that began since are ended. On a bare machine strangers begin processes too:
# there each process of the trial carries this variable.
ours() { [[ -z ${FULLCHAIN_SESSION-} ]] || grep -qsz "^FULLCHAIN_SESSION=$FULLCHAIN_SESSION" "$1/environ"; }
before=" $(echo /proc/[0-9]*) "
python3 -I /tests/hidden_tests.py && reward=1
# Nothing that the code under test has left running may change the reward once it is written.
for _ in {1..20}; do
    left=0
    for path in /proc/[0-9]*; do
        [[ $before == *" $path "* ]] || ! ours "$path" || ! kill -KILL "${path#/proc/}" 2>/dev/null || left=1
    done
    ((left)) || break
    sleep 0.05
done
rm -rf /logs/verifier/reward.txt /logs/verifier/reward.json
mkdir -p /logs/verifier
echo "$reward" >/logs/verifier/reward.txt
exit
}
