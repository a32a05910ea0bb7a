-- What the charges with the cause expiry_rebuild came from: how long the cache lay idle, and who held the floor meanwhile.

CREATE TABLE expiries (
    call VARCHAR PRIMARY KEY,
    trial_id VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    role VARCHAR NOT NULL,
    idle_s DOUBLE,
    holder VARCHAR,
    kind VARCHAR,
    held_s DOUBLE,
    tokens BIGINT,
    excess_usd DECIMAL(18, 12) NOT NULL
);

CREATE TABLE expiry_holds (
    call VARCHAR,
    holder VARCHAR,
    kind VARCHAR,
    seconds DOUBLE NOT NULL,
    PRIMARY KEY (call, holder, kind)
);
