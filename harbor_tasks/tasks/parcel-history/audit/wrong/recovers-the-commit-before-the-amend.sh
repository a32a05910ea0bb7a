#!/bin/bash
# Bisects the fault, mends it on a branch, and brings the lost branch back.
set -euo pipefail
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 PYTHONDONTWRITEBYTECODE=1
cd /app/repo
git bisect reset >/dev/null 2>&1 || true
git checkout -q -f main
git log --oneline --graph v1.2..main
mkdir -p /app/answers

# 1. A commit that cannot be run is skipped (125), never called good or bad.
cat >/tmp/judge.sh <<'JUDGE'
#!/bin/bash
line=$(python3 quote.py orders.csv 1007 2>/dev/null) || exit 125
case $line in
    *'up to 5 kg'*) exit 0 ;;
    *) exit 1 ;;
esac
JUDGE
git bisect start main v1.3 >/tmp/bisect.log
git bisect run bash /tmp/judge.sh >>/tmp/bisect.log 2>&1
git rev-parse refs/bisect/bad >/app/answers/culprit.txt
git bisect reset >/dev/null 2>&1
git show "$(cat /app/answers/culprit.txt)"

# 2. bisect.bisect is bisect_right: a weight on the limit goes into the next bracket.
git checkout -q -f -B fix main
sed -i -e 's/bisect\.bisect(/bisect.bisect_left(/' rates.py
python3 quote.py orders.csv
git commit -q -a -m 'A bracket holds its limit again'
git show --stat
git checkout -q main

# 3. The log of HEAD still has the commit.
lost=$(git reflog --format='%H %gs' | grep -F 'commit: Labels: print the return address' | head -n 1)
git branch -f feature/labels "${lost%% *}"
git log --oneline -n 3 feature/labels
