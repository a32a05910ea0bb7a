"""Scores /app/diagnosis.json: 0 when a true root cause is missing, else true causes / named causes."""

import json
import os
import stat

DIAGNOSIS = "/app/diagnosis.json"
REWARD = "/logs/verifier/reward.json"
TRUE = {("orders-pool", "connection_limit"), ("tax", "certificate_expired")}
PODS = {
    "gateway-5c8d7-k2v9x": "gateway",
    "gateway-5c8d7-t7pqm": "gateway",
    "web-6d5b9-q8hzt": "web",
    "checkout-79f6b-4wz8c": "checkout",
    "checkout-79f6b-hx5nl": "checkout",
    "orders-66d4f-9r2jd": "orders",
    "orders-66d4f-vl8st": "orders",
    "orders-pool-58d99-w4kcl": "orders-pool",
    "orders-db-0": "orders-db",
    "payments-7b9c5-m6kfq": "payments",
    "tax-84c6d-p3xwz": "tax",
    "inventory-5f77d-zc4bn": "inventory",
    "search-0": "search",
    "cache-0": "cache",
    "cache-1": "cache",
    "queue-0": "queue",
    "notify-6c9f8-b7d2s": "notify",
}


def named():
    """The named root causes; anything that is none, such as a number, is kept and counts as a wrong one."""
    # Never waits: a pipe that nobody writes to, a link or a device is no diagnosis.
    with open(os.open(DIAGNOSIS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError("not a regular file")
        causes = json.loads(stream.read(100_000).decode("utf-8-sig"))["root_causes"]
    if not isinstance(causes, list):
        raise ValueError("root_causes is no list")
    for cause in causes:
        if isinstance(cause, dict) and isinstance(cause.get("entity"), str) and isinstance(cause.get("fault"), str):
            entity = cause["entity"].strip()
            yield PODS.get(entity, entity), cause["fault"].strip()
        else:
            yield "not a cause", json.dumps(cause, sort_keys=True)


try:
    causes = set(named())
except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
    print(f"diagnosis.json cannot be read: {type(error).__name__}")
    causes = set()
found = causes & TRUE
reward = len(found) / len(causes) if found == TRUE else 0.0
print(f"{len(found)} of {len(TRUE)} root causes among {len(causes)} named: {reward:.4f}")
with open(REWARD, "w", encoding="utf-8") as stream:
    json.dump({"reward": round(reward, 6), "recall": len(found) / len(TRUE)}, stream)
