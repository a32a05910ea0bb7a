#!/bin/bash
# Follows the two error chains down to where they begin.
set -euo pipefail
cd /app/incident
cat topology.yaml alerts.log changes.log

# Chain 1: gateway 503 -> checkout -> orders: no connection from orders-pool, since 09:12.
grep -m 5 ' 503 ' logs/gateway.log
grep -m 5 ERROR logs/orders.log
grep -E 'stats|settings|reload' logs/orders-pool.log
cat config/orders-pool.ini
# The database behind the pool is idle: it is not the cause.
grep activity logs/orders-db.log

# Chain 2: gateway 502 -> checkout -> payments -> tax, since 09:30:00.
grep -m 5 ' 502 ' logs/gateway.log
grep -m 5 ERROR logs/payments.log
cat logs/tax.log config/tax.yaml config/payments.yaml

# Not behind the alerts: the cache was back at 08:58, inventory lost nothing, search is on no path of checkout.
tail -n 3 logs/notify.log
cat >/app/diagnosis.json <<'DIAGNOSIS'
{
  "root_causes": [
    {"entity": "orders-pool", "fault": "connection_limit"},
    {"entity": "tax", "fault": "certificate_expired"}
  ]
}
DIAGNOSIS
python3 -m json.tool /app/diagnosis.json
