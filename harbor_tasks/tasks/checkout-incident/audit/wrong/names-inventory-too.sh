#!/bin/bash
# Everything that was restarted or changed near an error is named.
set -euo pipefail
cd /app/incident
cat topology.yaml alerts.log changes.log
grep -m 5 ERROR logs/orders.log
grep -E 'stats|settings|reload' logs/orders-pool.log
cat config/orders-pool.ini
grep -m 5 ERROR logs/payments.log
cat logs/tax.log config/tax.yaml
# checkout calls inventory, and inventory was killed while checkout failed.
cat logs/inventory.log
cat >/app/diagnosis.json <<'DIAGNOSIS'
{
  "root_causes": [
    {"entity": "orders-pool", "fault": "connection_limit"},
    {"entity": "tax", "fault": "certificate_expired"},
    {"entity": "inventory", "fault": "memory"}
  ]
}
DIAGNOSIS
python3 -m json.tool /app/diagnosis.json
