-- What reviewers were given to judge, kept as archives beside the database, and what the task's tests said of it.
-- `states`: an archive each; trial, attempt and review say where it was seen first (review null: no verdict came of it).

CREATE TABLE IF NOT EXISTS states (
    hash VARCHAR PRIMARY KEY,
    size BIGINT NOT NULL,
    format VARCHAR NOT NULL,
    stored_at TIMESTAMPTZ NOT NULL,
    trial_id VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    review INTEGER
);
ALTER TABLE reviews ADD COLUMN IF NOT EXISTS truth_reward DOUBLE;
ALTER TABLE reviews ADD COLUMN IF NOT EXISTS truth_seconds DOUBLE;
ALTER TABLE reviews ADD COLUMN IF NOT EXISTS truth_reason VARCHAR;
ALTER TABLE reviews ADD COLUMN IF NOT EXISTS copy_seconds DOUBLE;
ALTER TABLE reviews ADD COLUMN IF NOT EXISTS state VARCHAR;
ALTER TABLE reviews ADD COLUMN IF NOT EXISTS state_reason VARCHAR;
