-- What a hand-over tells beside its text: the call that made it, how many tokens it handed on, and its reason. A visit
-- that ended without one has a row as well, without kind, payload and receiver. Of a role: how long its cache lives.

ALTER TABLE handovers ALTER COLUMN kind DROP NOT NULL;
ALTER TABLE handovers ALTER COLUMN payload DROP NOT NULL;
ALTER TABLE handovers ADD COLUMN IF NOT EXISTS call VARCHAR;
ALTER TABLE handovers ADD COLUMN IF NOT EXISTS tokens BIGINT;
ALTER TABLE handovers ADD COLUMN IF NOT EXISTS reason VARCHAR;
ALTER TABLE trial_roles ADD COLUMN IF NOT EXISTS cache_lifetime_s DOUBLE;
