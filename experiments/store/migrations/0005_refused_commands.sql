-- Why a role's policy did not let a command run; null for those that ran. A refused one has no exit code.

ALTER TABLE commands ADD COLUMN IF NOT EXISTS refused VARCHAR;
