#!/bin/bash
# Counts errors by service and blames the two that have most of them.
set -euo pipefail
cd /app/incident
cat alerts.log topology.yaml
grep -c ERROR logs/*.log || true
grep ERROR logs/orders.log | tail -n 5
grep ERROR logs/payments.log | tail -n 5
# orders was deployed at 08:48; payments cannot reach tax.
cat changes.log
cat >/app/diagnosis.json <<'DIAGNOSIS'
{
  "root_causes": [
    {"entity": "orders", "fault": "bad_deploy"},
    {"entity": "payments", "fault": "network_partition"}
  ]
}
DIAGNOSIS
python3 -m json.tool /app/diagnosis.json
