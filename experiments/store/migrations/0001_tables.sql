-- Money is DECIMAL(18,12) US dollars; times are UTC; *_tokens are whole tokens, null when unknown.

CREATE TABLE experiments (
    name VARCHAR PRIMARY KEY,
    description VARCHAR,
    spec JSON,
    models JSON NOT NULL,
    seed BIGINT NOT NULL,
    repeats INTEGER NOT NULL,
    pass_threshold DOUBLE NOT NULL,
    prices_at TIMESTAMPTZ,
    virtual_epoch TIMESTAMPTZ,
    simulated BOOLEAN NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE arms (
    experiment VARCHAR,
    name VARCHAR,
    position INTEGER NOT NULL,
    topology VARCHAR NOT NULL,
    roles JSON NOT NULL,
    parts JSON NOT NULL,
    PRIMARY KEY (experiment, name)
);

CREATE TABLE tasks (
    experiment VARCHAR,
    name VARCHAR,
    position INTEGER NOT NULL,
    digest VARCHAR NOT NULL,
    category VARCHAR,
    parts JSON NOT NULL,
    PRIMARY KEY (experiment, name)
);

CREATE TABLE trials (
    id VARCHAR PRIMARY KEY,
    experiment VARCHAR NOT NULL,
    arm VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    repeat INTEGER NOT NULL,
    position INTEGER NOT NULL,
    nonce VARCHAR NOT NULL,
    semantic_hash VARCHAR NOT NULL,
    simulated BOOLEAN NOT NULL,
    ended_by VARCHAR,
    outcome VARCHAR,
    unscored_reason VARCHAR,
    reward DOUBLE,
    passed BOOLEAN,
    changed BOOLEAN,
    final_attempt INTEGER,
    started_at TIMESTAMPTZ,
    ended_at TIMESTAMPTZ,
    wall_started_at TIMESTAMPTZ,
    wall_ended_at TIMESTAMPTZ,
    backend VARCHAR,
    notes VARCHAR
);

CREATE TABLE attempts (
    trial_id VARCHAR,
    attempt INTEGER,
    ended_by VARCHAR,
    outcome VARCHAR,
    unscored_reason VARCHAR,
    reward DOUBLE,
    passed BOOLEAN,
    changed BOOLEAN,
    started_at TIMESTAMPTZ,
    ended_at TIMESTAMPTZ,
    wall_started_at TIMESTAMPTZ,
    wall_ended_at TIMESTAMPTZ,
    backend VARCHAR,
    notes VARCHAR,
    error VARCHAR,
    verifier_output VARCHAR,
    verifier_seconds DOUBLE,
    PRIMARY KEY (trial_id, attempt)
);

CREATE TABLE trial_roles (
    trial_id VARCHAR,
    attempt INTEGER,
    lane VARCHAR,
    role VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    prompt VARCHAR NOT NULL,
    tools JSON,
    PRIMARY KEY (trial_id, attempt, lane)
);

CREATE TABLE calls (
    key VARCHAR PRIMARY KEY,
    trial_id VARCHAR NOT NULL,
    attempt INTEGER NOT NULL,
    role VARCHAR NOT NULL,
    lane VARCHAR NOT NULL,
    version INTEGER NOT NULL,
    turn VARCHAR NOT NULL,
    try INTEGER NOT NULL,
    blocks INTEGER NOT NULL,
    model VARCHAR NOT NULL,
    wire_model VARCHAR NOT NULL,
    response_model VARCHAR,
    provider VARCHAR NOT NULL,
    upstream VARCHAR,
    flavour VARCHAR NOT NULL,
    lifetime VARCHAR,
    status INTEGER,
    request_id VARCHAR,
    response_id VARCHAR,
    requested_at TIMESTAMPTZ NOT NULL,
    first_token_at TIMESTAMPTZ,
    ended_at TIMESTAMPTZ,
    outcome VARCHAR,
    idle_s DOUBLE,
    prompt_bytes BIGINT NOT NULL,
    max_output_tokens BIGINT,
    prompt_tokens BIGINT,
    input_tokens BIGINT,
    cache_read_tokens BIGINT,
    cache_write_5m_tokens BIGINT,
    cache_write_30m_tokens BIGINT,
    cache_write_1h_tokens BIGINT,
    cache_write_12h_tokens BIGINT,
    cache_write_unknown_tokens BIGINT,
    output_tokens BIGINT,
    reasoning_tokens BIGINT,
    basis VARCHAR,
    list_usd DECIMAL(18, 12),
    billed_usd DECIMAL(18, 12),
    cost_usd DECIMAL(18, 12),
    cost_low_usd DECIMAL(18, 12),
    cost_high_usd DECIMAL(18, 12),
    excess_usd DECIMAL(18, 12),
    unexplained_read_tokens BIGINT,
    usage JSON,
    usage_error VARCHAR,
    finish_reason VARCHAR,
    tool_calls_valid BOOLEAN,
    error VARCHAR,
    replayed BOOLEAN NOT NULL,
    simulated BOOLEAN NOT NULL
);

CREATE TABLE charges (
    call VARCHAR,
    line INTEGER,
    model VARCHAR NOT NULL,
    token_class VARCHAR NOT NULL,
    cause VARCHAR NOT NULL,
    units BIGINT,
    usd_low DECIMAL(18, 12) NOT NULL,
    usd_high DECIMAL(18, 12) NOT NULL,
    excess_usd DECIMAL(18, 12) NOT NULL,
    basis VARCHAR NOT NULL,
    PRIMARY KEY (call, line)
);

CREATE TABLE spans (
    trial_id VARCHAR,
    attempt INTEGER,
    seq INTEGER,
    kind VARCHAR NOT NULL,
    lane VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    ended_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (trial_id, attempt, seq)
);

CREATE TABLE messages (
    trial_id VARCHAR,
    attempt INTEGER,
    lane VARCHAR,
    version INTEGER,
    idx INTEGER,
    role VARCHAR NOT NULL,
    content JSON,
    hash VARCHAR NOT NULL,
    size BIGINT NOT NULL,
    PRIMARY KEY (trial_id, attempt, lane, version, idx)
);

CREATE TABLE commands (
    trial_id VARCHAR,
    attempt INTEGER,
    seq INTEGER,
    lane VARCHAR NOT NULL,
    turn INTEGER NOT NULL,
    command VARCHAR NOT NULL,
    exit_code INTEGER,
    output VARCHAR NOT NULL,
    size BIGINT NOT NULL,
    timed_out BOOLEAN NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    ended_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (trial_id, attempt, seq)
);

CREATE TABLE handovers (
    trial_id VARCHAR,
    attempt INTEGER,
    seq INTEGER,
    from_role VARCHAR NOT NULL,
    to_role VARCHAR,
    kind VARCHAR NOT NULL,
    payload VARCHAR NOT NULL,
    handed_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (trial_id, attempt, seq)
);

CREATE TABLE rewards (
    trial_id VARCHAR,
    attempt INTEGER,
    name VARCHAR,
    value DOUBLE,
    PRIMARY KEY (trial_id, attempt, name)
);

CREATE TABLE prices (
    experiment VARCHAR,
    card VARCHAR,
    above BIGINT,
    token_class VARCHAR,
    price VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    valid_from TIMESTAMPTZ,
    valid_until TIMESTAMPTZ,
    usd_per_mtok DECIMAL(18, 6) NOT NULL,
    PRIMARY KEY (experiment, card, above, token_class)
);
