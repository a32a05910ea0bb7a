-- Every figure that the command line shows. Dollars: `usd` sums what is known, `usd_low` and `usd_high` bracket all of it
-- (a call whose usage never came has a range only); all three agree when unknown_calls is 0.

CREATE OR REPLACE VIEW attempt_costs AS
WITH spent AS (
    SELECT
        trial_id,
        attempt,
        count(*) AS calls,
        count(*) FILTER (WHERE outcome IS NULL) AS calls_in_flight,
        count(*) FILTER (WHERE outcome IS NOT NULL AND cost_usd IS NULL) AS unknown_calls,
        count(DISTINCT (lane, turn)) FILTER (WHERE NOT starts_with(turn, 'k')) AS turns,
        coalesce(sum(cost_usd), 0) AS usd,
        coalesce(sum(cost_low_usd), 0) AS usd_low,
        coalesce(sum(cost_high_usd), 0) AS usd_high,
        coalesce(sum(excess_usd), 0) AS excess_usd,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(input_tokens)::BIGINT AS input_tokens,
        sum(cache_read_tokens)::BIGINT AS cache_read_tokens,
        sum(cache_write_5m_tokens)::BIGINT AS cache_write_5m_tokens,
        sum(cache_write_30m_tokens)::BIGINT AS cache_write_30m_tokens,
        sum(cache_write_1h_tokens)::BIGINT AS cache_write_1h_tokens,
        sum(cache_write_12h_tokens)::BIGINT AS cache_write_12h_tokens,
        sum(cache_write_unknown_tokens)::BIGINT AS cache_write_unknown_tokens,
        sum(output_tokens)::BIGINT AS output_tokens,
        sum(reasoning_tokens)::BIGINT AS reasoning_tokens,
        coalesce(sum(unexplained_read_tokens), 0) > 0 AS scope_leak
    FROM calls
    GROUP BY trial_id, attempt
)
SELECT
    trials.experiment,
    trials.arm,
    trials.task,
    trials.repeat,
    trial_id,
    attempt,
    attempt IS NOT DISTINCT FROM trials.final_attempt AS final,
    attempts.ended_by,
    coalesce(spent.calls, 0) AS calls,
    coalesce(spent.calls_in_flight, 0) AS calls_in_flight,
    coalesce(spent.unknown_calls, 0) AS unknown_calls,
    coalesce(spent.turns, 0) AS turns,
    date_diff('microsecond', attempts.started_at, attempts.ended_at) / 60e6 AS minutes,
    coalesce(spent.usd, 0) AS usd,
    coalesce(spent.usd_low, 0) AS usd_low,
    coalesce(spent.usd_high, 0) AS usd_high,
    coalesce(spent.excess_usd, 0) AS excess_usd,
    spent.prompt_tokens,
    spent.input_tokens,
    spent.cache_read_tokens,
    spent.cache_write_5m_tokens,
    spent.cache_write_30m_tokens,
    spent.cache_write_1h_tokens,
    spent.cache_write_12h_tokens,
    spent.cache_write_unknown_tokens,
    spent.output_tokens,
    spent.reasoning_tokens,
    coalesce(spent.scope_leak, false) AS scope_leak
FROM attempts
LEFT JOIN spent USING (trial_id, attempt)
JOIN trials ON trials.id = trial_id;

-- One row a trial that has begun: its final attempt, while it has none its latest; all_usd counts every attempt.
CREATE OR REPLACE VIEW trial_costs AS
SELECT
    experiment,
    arm,
    task,
    repeat,
    trial_id,
    attempt,
    final,
    trials.outcome,
    trials.ended_by,
    trials.reward,
    trials.passed,
    costs.* EXCLUDE (experiment, arm, task, repeat, trial_id, attempt, final, ended_by),
    sum(costs.usd) OVER all_attempts AS all_usd,
    sum(costs.usd_low) OVER all_attempts AS all_usd_low,
    sum(costs.usd_high) OVER all_attempts AS all_usd_high,
    trials.simulated
FROM attempt_costs AS costs
JOIN (SELECT id, outcome, ended_by, reward, passed, simulated FROM trials) AS trials ON trials.id = trial_id
WINDOW all_attempts AS (PARTITION BY trial_id)
QUALIFY row_number() OVER (PARTITION BY trial_id ORDER BY final DESC, attempt DESC) = 1;

-- Every charge with who caused it: the fact table of all cost views.
CREATE OR REPLACE VIEW cost_lines AS
SELECT
    trials.experiment,
    trials.arm,
    trials.task,
    trials.repeat,
    calls.trial_id,
    calls.attempt,
    calls.attempt IS NOT DISTINCT FROM trials.final_attempt AS final,
    calls.role,
    calls.lane,
    calls.turn,
    calls.requested_at,
    charges.*
FROM charges
JOIN calls ON calls.key = charges.call
JOIN trials ON trials.id = calls.trial_id;

CREATE OR REPLACE VIEW role_costs AS
SELECT
    experiment,
    arm,
    role,
    model,
    token_class,
    cause,
    sum(units)::BIGINT AS units,
    coalesce(sum(usd_low) FILTER (WHERE usd_low = usd_high), 0) AS usd,
    sum(usd_low) AS usd_low,
    sum(usd_high) AS usd_high,
    sum(excess_usd) AS excess_usd
FROM cost_lines
GROUP BY experiment, arm, role, model, token_class, cause;

CREATE OR REPLACE VIEW cause_costs AS
SELECT
    experiment,
    arm,
    cause,
    sum(units)::BIGINT AS units,
    coalesce(sum(usd_low) FILTER (WHERE usd_low = usd_high), 0) AS usd,
    sum(usd_low) AS usd_low,
    sum(usd_high) AS usd_high,
    sum(excess_usd) AS excess_usd,
    sum(usd_low) / nullif(sum(sum(usd_low)) OVER (PARTITION BY experiment, arm), 0) AS share
FROM cost_lines
GROUP BY experiment, arm, cause;

-- Who held the floor the longest while a role's cache expired (null: not known), and what that cost over reading it.
CREATE OR REPLACE VIEW expiry_costs AS
SELECT
    trials.experiment,
    trials.arm,
    expiries.role,
    expiries.holder,
    expiries.kind,
    count(*) AS expiries,
    sum(expiries.tokens)::BIGINT AS tokens,
    avg(expiries.idle_s) AS mean_idle_s,
    max(expiries.idle_s) AS most_idle_s,
    sum(expiries.excess_usd) AS excess_usd
FROM expiries
JOIN trials ON trials.id = expiries.trial_id
GROUP BY trials.experiment, trials.arm, expiries.role, expiries.holder, expiries.kind;

-- All who held it: the idle seconds of a role's expired caches, split.
CREATE OR REPLACE VIEW expiry_shares AS
SELECT
    trials.experiment,
    trials.arm,
    expiries.role,
    holds.holder,
    holds.kind,
    sum(holds.seconds) AS seconds,
    sum(holds.seconds)
    / sum(sum(holds.seconds)) OVER (PARTITION BY trials.experiment, trials.arm, expiries.role) AS share
FROM expiry_holds AS holds
JOIN expiries USING (call)
JOIN trials ON trials.id = expiries.trial_id
GROUP BY trials.experiment, trials.arm, expiries.role, holds.holder, holds.kind;

-- One row an arm. Means are over tasks of the mean over a task's scored trials (final attempts only); totals count every
-- attempt. Expiry is what charges with the cause expiry_rebuild cost, at list prices.
CREATE OR REPLACE VIEW compare AS
WITH planned AS (
    SELECT
        experiment,
        arm,
        count(*) AS trials,
        count(final_attempt) AS finished,
        count(*) FILTER (WHERE final_attempt IS NOT NULL AND outcome IN ('passed', 'failed')) AS scored,
        count(*) FILTER (WHERE final_attempt IS NOT NULL AND passed) AS passed,
        bool_or(simulated) AS simulated
    FROM trials
    GROUP BY experiment, arm
),
by_task AS (
    SELECT
        costs.experiment,
        costs.arm,
        costs.task,
        avg(trials.reward) AS score,
        avg(costs.usd) AS usd,
        avg(costs.usd_low) AS usd_low,
        avg(costs.usd_high) AS usd_high,
        avg(costs.turns) AS turns,
        avg(costs.minutes) AS minutes
    FROM attempt_costs AS costs
    JOIN trials ON trials.id = costs.trial_id AND trials.final_attempt = costs.attempt
    WHERE trials.outcome IN ('passed', 'failed')
    GROUP BY costs.experiment, costs.arm, costs.task
),
means AS (
    SELECT
        experiment,
        arm,
        avg(score) AS score,
        avg(usd) AS usd,
        avg(usd_low) AS usd_low,
        avg(usd_high) AS usd_high,
        avg(turns) AS turns,
        avg(minutes) AS minutes
    FROM by_task
    GROUP BY experiment, arm
),
spent AS (
    SELECT
        experiment,
        arm,
        sum(usd) AS usd,
        sum(usd_low) AS usd_low,
        sum(usd_high) AS usd_high,
        sum(unknown_calls)::BIGINT AS unknown_calls,
        bool_or(scope_leak) AS scope_leak
    FROM attempt_costs
    GROUP BY experiment, arm
),
charged AS (
    SELECT
        experiment,
        arm,
        sum(usd_low) AS usd,
        coalesce(sum(usd_low) FILTER (WHERE cause = 'expiry_rebuild'), 0) AS expiry_usd,
        coalesce(sum(excess_usd) FILTER (WHERE cause = 'expiry_rebuild'), 0) AS expiry_excess_usd
    FROM cost_lines
    GROUP BY experiment, arm
)
SELECT
    experiment,
    arm,
    planned.trials,
    planned.finished,
    planned.scored,
    planned.passed,
    planned.scored / planned.trials AS coverage,
    means.score AS mean_score,
    means.usd::DECIMAL(38, 12) AS usd_a_task,
    means.usd_low::DECIMAL(38, 12) AS usd_a_task_low,
    means.usd_high::DECIMAL(38, 12) AS usd_a_task_high,
    (spent.usd / nullif(planned.passed, 0))::DECIMAL(38, 12) AS usd_a_pass,
    (spent.usd_low / nullif(planned.passed, 0))::DECIMAL(38, 12) AS usd_a_pass_low,
    (spent.usd_high / nullif(planned.passed, 0))::DECIMAL(38, 12) AS usd_a_pass_high,
    coalesce(spent.usd, 0) AS total_usd,
    coalesce(spent.usd_low, 0) AS total_usd_low,
    coalesce(spent.usd_high, 0) AS total_usd_high,
    coalesce(charged.expiry_usd, 0) AS expiry_usd,
    charged.expiry_usd / nullif(charged.usd, 0) AS expiry_share,
    coalesce(charged.expiry_excess_usd, 0) AS expiry_excess_usd,
    means.turns,
    means.minutes,
    coalesce(spent.unknown_calls, 0) AS unknown_calls,
    coalesce(spent.scope_leak, false) AS scope_leak,
    planned.simulated
FROM planned
LEFT JOIN means USING (experiment, arm)
LEFT JOIN spent USING (experiment, arm)
LEFT JOIN charged USING (experiment, arm)
LEFT JOIN (SELECT experiment, name AS arm, position FROM arms) AS arms USING (experiment, arm)
ORDER BY experiment, arms.position;

-- How well reviewers judge, by role and model, over final attempts: counted where the truth is known. caught: wrong work
-- that was rejected; missed: wrong work that was approved; false_rejects: right work that was rejected. A rate is null
-- where there is nothing to count.
CREATE OR REPLACE VIEW reviewer_quality AS
SELECT
    *,
    caught / nullif(wrong, 0) AS recall,
    missed / nullif(wrong, 0) AS miss_rate,
    false_rejects / nullif("right", 0) AS false_reject_rate
FROM (
    SELECT
        trials.experiment,
        trials.arm,
        reviews.role,
        calls.model,
        count(*) AS reviews,
        count(reviews.truth) AS truths,
        count(*) FILTER (WHERE NOT reviews.truth) AS wrong,
        count(*) FILTER (WHERE NOT reviews.truth AND verdict = 'reject') AS caught,
        count(*) FILTER (WHERE NOT reviews.truth AND verdict != 'reject') AS missed,
        count(*) FILTER (WHERE reviews.truth) AS "right",
        count(*) FILTER (WHERE reviews.truth AND verdict = 'reject') AS false_rejects,
        bool_or(trials.simulated) AS simulated
    FROM reviews
    JOIN trials ON trials.id = reviews.trial_id AND trials.final_attempt = reviews.attempt
    JOIN calls ON calls.key = reviews.call
    GROUP BY trials.experiment, trials.arm, reviews.role, calls.model
)
ORDER BY experiment, arm, role, model;

CREATE OR REPLACE VIEW call_timeline AS
SELECT
    calls.trial_id,
    calls.attempt,
    date_diff('microsecond', attempts.started_at, calls.requested_at) / 1e6 AS at_s,
    date_diff('microsecond', calls.requested_at, calls.first_token_at) / 1e6 AS first_token_s,
    date_diff('microsecond', calls.requested_at, calls.ended_at) / 1e6 AS seconds,
    calls.idle_s,
    calls.role,
    calls.lane,
    calls.turn,
    calls.try,
    calls.model,
    calls.outcome,
    calls.prompt_tokens,
    calls.input_tokens,
    calls.cache_read_tokens,
    calls.cache_write_5m_tokens,
    calls.cache_write_30m_tokens,
    calls.cache_write_1h_tokens,
    calls.cache_write_12h_tokens,
    calls.cache_write_unknown_tokens,
    calls.output_tokens,
    calls.reasoning_tokens,
    calls.cost_usd,
    calls.cost_low_usd,
    calls.cost_high_usd,
    calls.excess_usd,
    calls.basis,
    settlements.source AS settled_by,
    explained.causes,
    calls.finish_reason,
    calls.tool_calls_valid,
    coalesce(calls.error, calls.usage_error) AS error,
    calls.key,
    calls.requested_at
FROM calls
LEFT JOIN attempts USING (trial_id, attempt)
LEFT JOIN settlements ON settlements.call = calls.key
LEFT JOIN (
    SELECT call, string_agg(cause || coalesce(' ' || units, ''), ', ' ORDER BY first_line) AS causes
    FROM (
        SELECT call, cause, sum(units)::BIGINT AS units, min(line) AS first_line
        FROM charges
        WHERE cause != 'output'
        GROUP BY call, cause
    )
    GROUP BY call
) AS explained ON explained.call = calls.key
ORDER BY calls.trial_id, calls.attempt, calls.requested_at, calls.key;

CREATE OR REPLACE VIEW command_timeline AS
SELECT
    commands.trial_id,
    commands.attempt,
    date_diff('microsecond', attempts.started_at, commands.started_at) / 1e6 AS at_s,
    date_diff('microsecond', commands.started_at, commands.ended_at) / 1e6 AS seconds,
    roles.role,
    commands.lane,
    commands.turn,
    commands.command,
    commands.exit_code,
    commands.refused,
    commands.timed_out,
    commands.size,
    commands.output,
    commands.seq,
    commands.started_at
FROM commands
LEFT JOIN attempts USING (trial_id, attempt)
LEFT JOIN (SELECT trial_id, attempt, lane, role FROM trial_roles) AS roles USING (trial_id, attempt, lane)
ORDER BY commands.trial_id, commands.attempt, commands.started_at, commands.seq;

-- What a hand-over leaves idle: each lane but the receiver's that had called before, from its last request to its next
-- (pings are neither), and what was paid to write a cache again that expired meanwhile. Null: it never called again.
-- `opened`: it had called since the hand-over before, so that this one began the gap; summed over these no gap counts twice.
-- Nothing is materialized, so that a question about one trial reads that trial alone.
CREATE OR REPLACE VIEW handover_gaps AS
WITH turns AS NOT MATERIALIZED (
    SELECT
        trial_id,
        attempt,
        lane,
        turn,
        any_value(role) AS role,
        min(requested_at) AS asked_at,
        max(requested_at) AS tried_at
    FROM calls
    WHERE NOT starts_with(turn, 'k')
    GROUP BY trial_id, attempt, lane, turn
),
lanes AS NOT MATERIALIZED (
    SELECT trial_id, attempt, lane, any_value(role) AS role
    FROM turns
    GROUP BY trial_id, attempt, lane
),
handed AS NOT MATERIALIZED (
    SELECT
        *,
        lag(handed_at) OVER (PARTITION BY trial_id, attempt ORDER BY seq) AS before_at
    FROM handovers
),
heard AS NOT MATERIALIZED (
    SELECT handed.trial_id, handed.attempt, handed.seq, turns.lane
    FROM handed
    ASOF JOIN turns
        ON turns.trial_id = handed.trial_id
        AND turns.attempt = handed.attempt
        AND turns.role = handed.to_role
        AND turns.asked_at >= handed.handed_at
),
gaps AS NOT MATERIALIZED (
    SELECT
        handed.trial_id,
        handed.attempt,
        handed.seq,
        handed.from_role,
        handed.to_role,
        handed.reason,
        handed.before_at,
        lanes.lane,
        lanes.role,
        last.tried_at AS last_at,
        next.asked_at AS next_at,
        next.tried_at AS until_at
    FROM handed
    JOIN lanes USING (trial_id, attempt)
    ASOF JOIN turns AS last
        ON last.trial_id = handed.trial_id
        AND last.attempt = handed.attempt
        AND last.lane = lanes.lane
        AND last.tried_at < handed.handed_at
    ASOF LEFT JOIN turns AS next
        ON next.trial_id = handed.trial_id
        AND next.attempt = handed.attempt
        AND next.lane = lanes.lane
        AND next.asked_at >= handed.handed_at
),
paid AS NOT MATERIALIZED (
    SELECT gaps.trial_id, gaps.attempt, gaps.seq, gaps.lane, sum(expiries.excess_usd) AS excess_usd
    FROM gaps
    JOIN calls
        ON calls.trial_id = gaps.trial_id
        AND calls.attempt = gaps.attempt
        AND calls.lane = gaps.lane
        AND calls.requested_at > gaps.last_at
        AND calls.requested_at <= gaps.until_at
    JOIN expiries ON expiries.call = calls.key
    GROUP BY gaps.trial_id, gaps.attempt, gaps.seq, gaps.lane
)
SELECT
    gaps.trial_id,
    gaps.attempt,
    gaps.seq,
    gaps.from_role,
    gaps.to_role,
    gaps.reason,
    gaps.lane,
    gaps.role,
    coalesce(gaps.last_at >= gaps.before_at, true) AS opened,
    date_diff('microsecond', gaps.last_at, gaps.next_at) / 1e6 AS seconds,
    lifetimes.cache_lifetime_s,
    CASE WHEN gaps.next_at IS NOT NULL THEN paid.excess_usd IS NOT NULL END AS expired,
    CASE WHEN gaps.next_at IS NOT NULL THEN coalesce(paid.excess_usd, 0) END AS excess_usd
FROM gaps
LEFT JOIN heard USING (trial_id, attempt, seq)
LEFT JOIN paid
    ON paid.trial_id = gaps.trial_id
    AND paid.attempt = gaps.attempt
    AND paid.seq = gaps.seq
    AND paid.lane = gaps.lane
LEFT JOIN (
    SELECT trial_id, attempt, role, any_value(cache_lifetime_s) AS cache_lifetime_s
    FROM trial_roles
    GROUP BY trial_id, attempt, role
) AS lifetimes
    ON lifetimes.trial_id = gaps.trial_id
    AND lifetimes.attempt = gaps.attempt
    AND lifetimes.role = gaps.role
WHERE gaps.lane IS DISTINCT FROM heard.lane
ORDER BY gaps.trial_id, gaps.attempt, gaps.seq, gaps.lane;

-- A row for each rewriting of a lane by its role's context policy. The turn that was first sent the new version had to pay
-- for `rebuilt_tokens` anew, `excess_usd` more than reading them; a summary had its own price before (null: none was asked
-- for, or its price is not known).
CREATE OR REPLACE VIEW rewrite_timeline AS
SELECT
    trials.experiment,
    trials.arm,
    trials.task,
    trials.repeat,
    rewrites.trial_id,
    rewrites.attempt,
    date_diff('microsecond', attempts.started_at, rewrites.rewritten_at) / 1e6 AS at_s,
    rewrites.role,
    rewrites.lane,
    rewrites.version,
    rewrites.policy,
    rewrites.outcome,
    rewrites.turn,
    rewrites.first,
    rewrites.results,
    rewrites.blocks_before - rewrites.blocks_after AS blocks_removed,
    rewrites.bytes_before - rewrites.bytes_after AS bytes_removed,
    coalesce(rebuilt.tokens, 0) AS rebuilt_tokens,
    coalesce(rebuilt.usd, 0) AS rebuilt_usd,
    coalesce(rebuilt.excess_usd, 0) AS excess_usd,
    summaries.cost_usd AS summary_usd,
    rewrites.call
FROM rewrites
JOIN trials ON trials.id = rewrites.trial_id
LEFT JOIN attempts USING (trial_id, attempt)
LEFT JOIN (SELECT key AS call, cost_usd FROM calls) AS summaries USING (call)
LEFT JOIN (
    SELECT
        calls.trial_id,
        calls.attempt,
        calls.lane,
        calls.version,
        try_cast(calls.turn AS INTEGER) AS turn,
        sum(charges.units)::BIGINT AS tokens,
        sum(charges.usd_low) AS usd,
        sum(charges.excess_usd) AS excess_usd
    FROM charges
    JOIN calls ON calls.key = charges.call
    WHERE charges.cause = 'change_rebuild'
    GROUP BY ALL
) AS rebuilt USING (trial_id, attempt, lane, version, turn);

CREATE OR REPLACE VIEW context_costs AS
SELECT
    experiment,
    arm,
    role,
    policy,
    count(*) FILTER (WHERE outcome = 'rewritten') AS rewrites,
    count(*) FILTER (WHERE outcome != 'rewritten') AS failed,
    sum(results)::BIGINT AS results,
    sum(bytes_removed)::BIGINT AS bytes_removed,
    sum(rebuilt_tokens)::BIGINT AS rebuilt_tokens,
    sum(rebuilt_usd) AS rebuilt_usd,
    sum(excess_usd) AS excess_usd,
    sum(summary_usd) AS summary_usd
FROM rewrite_timeline
GROUP BY experiment, arm, role, policy;

-- The blocks that each call was sent with, in order: of each block the newest version up to the call's own.
CREATE OR REPLACE VIEW call_messages AS
SELECT
    calls.key AS call,
    calls.trial_id,
    calls.attempt,
    messages.lane,
    messages.idx,
    messages.version,
    messages.role,
    messages.content,
    messages.hash,
    messages.size
FROM calls
JOIN messages
    ON messages.trial_id = calls.trial_id
    AND messages.attempt = calls.attempt
    AND messages.lane = calls.lane
    AND messages.version <= calls.version
    AND messages.idx < calls.blocks
QUALIFY row_number() OVER (PARTITION BY calls.key, messages.idx ORDER BY messages.version DESC) = 1;
