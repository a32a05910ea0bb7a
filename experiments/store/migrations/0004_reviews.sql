-- A reviewer's verdicts, a row each. `round` counts how often work has been handed to the reviewer in the attempt;
-- `handover` is the verdict's own place in handovers, `reviewed` that of the work it judges. `truth`: whether that work
-- was right, null while nobody has found out.

CREATE TABLE reviews (
    trial_id VARCHAR,
    attempt INTEGER,
    number INTEGER,
    role VARCHAR NOT NULL,
    lane VARCHAR NOT NULL,
    turn INTEGER NOT NULL,
    call VARCHAR NOT NULL,
    round INTEGER NOT NULL,
    handover INTEGER NOT NULL,
    reviewed INTEGER,
    verdict VARCHAR NOT NULL,
    confidence DOUBLE NOT NULL,
    findings JSON NOT NULL,
    given_at TIMESTAMPTZ NOT NULL,
    truth BOOLEAN,
    PRIMARY KEY (trial_id, attempt, number)
);
