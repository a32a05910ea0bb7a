#!/bin/bash
reward=0
python3 -I /tests/hidden_tests.py && reward=1
mkdir -p /logs/verifier
echo "$reward" >/logs/verifier/reward.txt
