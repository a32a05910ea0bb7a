"""Checks the culprit, the branch fix (its shape and what it computes) and the branch that was lost."""

import csv
import os
import shutil
import stat
import sys
import tempfile
from decimal import Decimal

sys.path.insert(0, "/tests")
sys.dont_write_bytecode = True

from confined import confined  # noqa: E402

REPO = "/app/repo"
MAIN = "f4f95e674707026f01c990f8172fdfa4d71dea88"
CULPRIT = "1b59915b921b9644cea6091b331e865636ea57ad"
LABELS = "20527f9e986c3d23f217d675f4dbe9897265ad93"
TAGS = {
    "v1.0": "d9068d3a92157f298e8bebf294f9ed0a1d1ab564",
    "v1.2": "0e315da859fbd5612900a1f2e01b05007c0822a1",
    "v1.3": "49263d5ca6a4fc28ee9f7500318fd0625d5924da",
}


def git(*arguments):
    command = ["git", "-c", "safe.directory=*", "--no-replace-objects", "-C", REPO, *arguments]
    code, stdout, _ = confined(command)
    return stdout if code == 0 else ""


def hash_of(ref):
    return git("rev-parse", "--verify", "--quiet", ref + "^{commit}").strip()


def expected_lines():
    """What quote.py must print, worked out from the two files."""
    table = {}
    with open("/tests/prices.csv", newline="") as stream:
        for row in csv.DictReader(stream):
            table.setdefault(row["zone"], []).append((Decimal(row["limit_kg"]), Decimal(row["price"])))
    total = Decimal(0)
    with open("/tests/orders.csv", newline="") as stream:
        for row in csv.DictReader(stream):
            weight = Decimal(row["weight_kg"])
            counted = max(weight, Decimal("7.5")) if row["size"] == "bulky" else weight
            price = min((limit, price) for limit, price in table[row["zone"]] if counted <= limit)[1]
            total += price
            yield f"{row['order']} {row['zone']} {row['weight_kg']} kg {price}"
    yield f"TOTAL {total}"


def quote(directory, *arguments):
    command = [sys.executable, "-E", "-s", "-B", "quote.py", *arguments]
    return confined(command, cwd=directory)


def first_bytes(path):
    """At most 1000 bytes of a regular file; anything else, such as a pipe that nobody writes to, is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a regular file")
        return os.read(descriptor, 1000)
    finally:
        os.close(descriptor)


def faults():
    wanted_lines = list(expected_lines())
    try:
        culprit = first_bytes("/app/answers/culprit.txt").decode().strip()
    except (OSError, UnicodeDecodeError):
        yield "/app/answers/culprit.txt cannot be read"
    else:
        if culprit != CULPRIT:
            yield "culprit.txt names another commit"
    if hash_of("refs/heads/main") != MAIN:
        yield "main has moved"
    for tag, wanted in TAGS.items():
        if hash_of(f"refs/tags/{tag}") != wanted:
            yield f"tag {tag} has moved"
    if hash_of("refs/heads/feature/labels") != LABELS:
        yield "feature/labels is not the lost commit"
    fix = hash_of("refs/heads/fix")
    if not fix:
        yield "there is no branch fix"
        return
    if git("rev-list", "--parents", "-n", "1", fix).split()[1:] != [MAIN]:
        yield "fix is not one commit on top of main"
    changed = git("diff-tree", "-r", "--no-commit-id", "--name-only", MAIN, fix).split()
    if changed != ["rates.py"]:
        yield f"fix changes {', '.join(changed) or 'nothing'}"
    directory = tempfile.mkdtemp()
    try:
        for name in ("rates.py", "quote.py", "money.py"):
            with open(os.path.join(directory, name), "w", encoding="utf-8") as stream:
                stream.write(git("show", f"{fix}:{name}"))
        for name in ("orders.csv", "prices.csv"):
            shutil.copy(f"/tests/{name}", directory)
        _, printed, _ = quote(directory, "orders.csv")
        if printed.splitlines() != wanted_lines:
            yield "fix: quote.py gives other prices"
        with open(os.path.join(directory, "heavy.csv"), "w") as stream:
            stream.write("order,zone,weight_kg,size\n1,C,10.0005,\n")
        code, _, stderr = quote(directory, "heavy.csv")
        if code == 0 or "NoBracket" not in stderr:
            yield "fix: a parcel above the highest limit is not refused"
    finally:
        shutil.rmtree(directory)


found = list(faults())
for fault in found:
    print(fault)
print("all three are right" if not found else f"{len(found)} faults")
sys.exit(1 if found else 0)
