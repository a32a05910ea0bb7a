#!/bin/bash
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 LC_ALL=C
reward=0
python3 -I /tests/check_repo.py && reward=1
mkdir -p /logs/verifier
echo "$reward" >/logs/verifier/reward.txt
