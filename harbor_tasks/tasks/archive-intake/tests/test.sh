#!/bin/bash
mkdir -p /logs/verifier
echo 0 >/logs/verifier/reward.txt
reward=0
python3 -I /tests/check_archive.py && reward=1
echo "$reward" >/logs/verifier/reward.txt
