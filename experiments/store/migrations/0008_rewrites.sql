-- When a role's context policy rewrote its lane: `version` is the new one, `first` its first altered block, `turn` the first
-- that was sent it. Blocks and bytes are the lane's, head left out of the bytes. `outcome` other than rewritten: a model was
-- asked for a summary (in `call`) and gave none that could be used, so that the request for it was taken back.

CREATE TABLE IF NOT EXISTS rewrites (
    trial_id VARCHAR,
    attempt INTEGER,
    lane VARCHAR,
    version INTEGER,
    role VARCHAR NOT NULL,
    policy VARCHAR NOT NULL,
    outcome VARCHAR NOT NULL,
    turn INTEGER NOT NULL,
    call VARCHAR,
    first INTEGER NOT NULL,
    results INTEGER NOT NULL,
    blocks_before INTEGER NOT NULL,
    blocks_after INTEGER NOT NULL,
    bytes_before BIGINT NOT NULL,
    bytes_after BIGINT NOT NULL,
    rewritten_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (trial_id, attempt, lane, version)
);
