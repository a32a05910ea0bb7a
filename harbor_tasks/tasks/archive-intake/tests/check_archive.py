"""Compares /app/archive with the lists that the rules give for the delivered files."""

import hashlib
import os
import stat
import sys

EXPECTED = "/tests/expected"
ARCHIVE = "/app/archive"
INCOMING = "/app/incoming"
LARGEST = 1_000_000
LISTS = ("MANIFEST.tsv", "SKIPPED.tsv", "TOTALS.tsv")


def is_small_file(path):
    """Neither a link nor a pipe or the like, and no larger than anything that belongs here."""
    if not os.path.lexists(path):
        return False
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST


def sha256(path):
    if not is_small_file(path):
        return "no small regular file"
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def tree(root, *, from_depth):
    """Path relative to root -> SHA-256, for files at least `from_depth` directories below it."""
    found = {}
    for directory, folders, files in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(directory, name))]
        for name in files + links:
            path = os.path.join(directory, name)
            relative = os.path.relpath(path, root)
            if relative.count("/") >= from_depth:
                found[relative] = sha256(path)
    return found


def rows(path):
    with open(path, encoding="utf-8", newline="") as stream:
        return [line.split("\t") for line in stream.read().split("\n")[:-1]]


def differences(wanted, found):
    for path in sorted(wanted.keys() | found.keys()):
        if path not in found:
            yield f"missing: {path}"
        elif path not in wanted:
            yield f"not expected: {path}"
        elif wanted[path] != found[path]:
            yield f"other bytes: {path}"


def faults():
    for name in LISTS:
        path = os.path.join(ARCHIVE, name)
        if not is_small_file(path):
            yield f"{name} is missing, no regular file or too large"
            continue
        with open(path, "rb") as stream:
            found = stream.read()
        with open(os.path.join(EXPECTED, name), "rb") as stream:
            wanted = stream.read()
        if found != wanted:
            theirs, ours = found.split(b"\n"), wanted.split(b"\n")
            first = next((n for n, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
            yield f"{name} is wrong from line {first + 1} on"
    archived = {target: digest for digest, _, target, _ in rows(os.path.join(EXPECTED, "MANIFEST.tsv"))}
    yield from (f"archive: {text}" for text in differences(archived, tree(ARCHIVE, from_depth=1)))
    delivered = {path: digest for digest, path in rows(os.path.join(EXPECTED, "SOURCES.tsv"))}
    yield from (f"incoming: {text}" for text in differences(delivered, tree(INCOMING, from_depth=0)))


found = list(faults())
for fault in found:
    print(fault)
print("the archive is right" if not found else f"{len(found)} faults")
sys.exit(1 if found else 0)
