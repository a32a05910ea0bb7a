"""What a number of further trials will cost, from what trials of the same arm have cost: a sum and its interval.

A trial's dollars are taken as its task's mean plus noise. The noise is what repeats of a task differ by (pooled over
tasks); where no task was repeated, what all trials differ by stands for it, which is more. A task that has not been
seen is taken as one more of those that were. The interval is Student's t over both: it covers the sum, not the mean,
so it holds the noise of the trials to come and the error of the means they are predicted from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, variance

from experiments.statistics.student import t_quantile

LEVEL = 0.9
"""Of the intervals: so often the sum lies inside."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Dollars. `half` is half the interval's width, None where what was seen shows no spread (one trial; one task, of
    which another is predicted)."""

    expected: float
    half: float | None


def predicted(seen: Mapping[str, Sequence[float]], planned: Mapping[str, int]) -> Sum:
    """`seen`: dollars of trials by task; `planned`: further trials by task. Raises ValueError when nothing was seen."""
    means = {task: mean(costs) for task, costs in seen.items() if costs}
    if not means:
        raise ValueError("nothing was seen to predict from")
    of_all = mean(means.values())
    wanted = {task: count for task, count in planned.items() if count}
    expected = sum(count * means.get(task, of_all) for task, count in wanted.items())
    known = {task: count for task, count in wanted.items() if task in means}
    unseen = [count for task, count in wanted.items() if task not in means]
    spread, freedoms = 0.0, list[int]()
    noise = _noise(seen)
    if known:
        if noise is None:
            return Sum(expected, None)
        spread += noise[0] * sum(count + count**2 / len(seen[task]) for task, count in known.items())
        freedoms.append(noise[1])
    if unseen:
        if len(means) < 2:
            return Sum(expected, None)
        between = variance(means.values()) * (sum(count**2 for count in unseen) + sum(unseen) ** 2 / len(means))
        spread += between + (noise[0] if noise else 0.0) * sum(unseen)
        freedoms.append(len(means) - 1)
    if not freedoms:
        return Sum(expected, 0.0)
    return Sum(expected, t_quantile(0.5 + LEVEL / 2, min(freedoms)) * spread**0.5)


def _noise(seen: Mapping[str, Sequence[float]]) -> tuple[float, int] | None:
    """Variance of a trial around its task's mean, and its degrees of freedom."""
    freedom = sum(len(costs) - 1 for costs in seen.values() if costs)
    if freedom:
        squares = sum((len(costs) - 1) * variance(costs) for costs in seen.values() if len(costs) > 1)
        return squares / freedom, freedom
    everything = [cost for costs in seen.values() for cost in costs]
    return (variance(everything), len(everything) - 1) if len(everything) > 1 else None
