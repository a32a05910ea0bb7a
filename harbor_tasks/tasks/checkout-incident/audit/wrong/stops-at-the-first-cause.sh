#!/bin/bash
# One change, one incident: the pool was changed two minutes before the first alert.
set -euo pipefail
cd /app/incident
cat topology.yaml alerts.log changes.log
grep -m 5 ' 503 ' logs/gateway.log
grep -m 5 ERROR logs/orders.log
grep -E 'stats|settings|reload' logs/orders-pool.log
cat config/orders-pool.ini
cat >/app/diagnosis.json <<'DIAGNOSIS'
{"root_causes": [{"entity": "orders-pool-58d99-w4kcl", "fault": "connection_limit"}]}
DIAGNOSIS
python3 -m json.tool /app/diagnosis.json
