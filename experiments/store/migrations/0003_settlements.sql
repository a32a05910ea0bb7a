-- What a bill told afterwards of a call whose usage never came: a raw fact, which every booking of the call reads.
-- `tokens` by class, null where the bill does not tell them; `usd_counts` false: its issuer bills at other prices than the
-- experiment's, so its tokens are priced like any other call's.

CREATE TABLE settlements (
    call VARCHAR PRIMARY KEY,
    source VARCHAR NOT NULL,
    bill VARCHAR NOT NULL,
    arrived BOOLEAN NOT NULL,
    tokens JSON,
    usd DECIMAL(18, 12) NOT NULL,
    usd_counts BOOLEAN NOT NULL,
    told JSON,
    settled_at TIMESTAMPTZ NOT NULL
);
