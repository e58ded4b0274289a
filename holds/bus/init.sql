-- The log of events that several Holdfast processes share, in PostgreSQL 14 or later.
-- `holdfast bus init` runs this; so may you, with psql -v ON_ERROR_STOP=1 -f. It may be run
-- again at any time, by the role that ran it first. For a log of another name, replace
-- the word holdfast where it stands alone; it is the schema's.
--
-- An app publishes with
--
--   SELECT holdfast.holdfast_publish('news', 'hi');
--   SELECT holdfast.holdfast_publish('{"channel": "news", "data": {"n": 1}}'::jsonb);
--
-- in a transaction of its own: published when that commits, never when it is rolled back. The size
-- may be up to 8 MiB: NOTIFY wakes Holdfast and carries no data. (A transaction that used NOTIFY
-- cannot be prepared for a two-phase commit; PostgreSQL says so.)
--
-- What a role needs, once this has run:
--
--   GRANT USAGE ON SCHEMA holdfast TO app;                      -- an app that publishes
--   GRANT EXECUTE ON FUNCTION holdfast.holdfast_publish(text, text),
--                             holdfast.holdfast_publish(jsonb) TO app;
--
--   GRANT USAGE ON SCHEMA holdfast TO node;                     -- Holdfast itself, if it
--   GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO node;  -- is not the owner
--
-- No role needs rights to the tables: the functions run with their owner's.

BEGIN;

-- One at a time: two that make the same schema would stumble over each other.
SELECT pg_advisory_xact_lock(hashtext('holdfast bus init'), hashtext('holdfast'));

DO $$
BEGIN
  IF to_regnamespace('holdfast') IS NULL THEN
    CREATE SCHEMA holdfast;
  END IF;
  IF to_regclass('holdfast.meta') IS NOT NULL THEN
    IF (SELECT version FROM holdfast.meta) > 1 THEN
      RAISE EXCEPTION 'the schema holdfast was made by a later Holdfast: its version is %, and this is 1', (SELECT version FROM holdfast.meta);
    END IF;
  END IF;
END $$;

-- Where the log stands. Start names this log; another start, another log. The
-- last three digits of start, floor, head and every id are the log's tag.
CREATE TABLE IF NOT EXISTS holdfast.meta (
  one     boolean  PRIMARY KEY DEFAULT true CHECK (one),
  version integer  NOT NULL,
  start   bigint   NOT NULL,
  floor   bigint   NOT NULL,                       -- nothing up to and with it is there any more
  head    bigint   NOT NULL,                       -- the last entry's id, or start
  length  bigint   NOT NULL DEFAULT 0,             -- entries in the log
  keep    interval NOT NULL DEFAULT '10 minutes',  -- how long, and
  entries bigint   NOT NULL DEFAULT 100000,        -- how many are kept; the nodes set both
  writer  bigint,                                  -- the transaction that wrote this row, and
  run     timestamptz                              -- when the server it ran on was started
) WITH (fillfactor = 50);

-- What was published by apps and has no number yet: numbers are given behind the
-- commit, so that a transaction that commits late is not passed over.
CREATE TABLE IF NOT EXISTS holdfast.inbox (
  seq  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- The log. Its commits come one after the other (holdfast_enter holds a lock), so
-- whoever sees an entry sees all before it.
CREATE TABLE IF NOT EXISTS holdfast.log (
  id   bigint PRIMARY KEY,
  prev bigint NOT NULL,          -- the id of the entry before it
  at   timestamptz NOT NULL,     -- when it was numbered
  body bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

INSERT INTO holdfast.meta (version, start, floor, head)
SELECT 1, made, made, made
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint * 1000 + floor(random() * 1000)::bigint AS made) AS log
ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION holdfast.holdfast_version() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT version FROM holdfast.meta
$$;

-- This transaction, as a row's xmin shows it.
CREATE OR REPLACE FUNCTION holdfast.holdfast_writer() RETURNS bigint
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT pg_current_xact_id()::text::bigint & 4294967295
$$;

-- For apps. Channel and data become the body {"channel": …, "data": …}.
CREATE OR REPLACE FUNCTION holdfast.holdfast_publish(channel text, data text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF channel IS NULL OR data IS NULL THEN
    RAISE EXCEPTION 'holdfast_publish: give a channel and data, not NULL' USING ERRCODE = 'null_value_not_allowed';
  END IF;
  PERFORM holdfast.holdfast_publish(jsonb_build_object('channel', channel, 'data', data));
END $$;

-- For apps. The body is what POST /publish takes.
CREATE OR REPLACE FUNCTION holdfast.holdfast_publish(body jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  name  text := CASE WHEN jsonb_typeof(body -> 'channel') = 'string' THEN body ->> 'channel' END;
  bytes bytea := convert_to(body::text, 'UTF8');
BEGIN
  IF body IS NULL OR jsonb_typeof(body) <> 'object' THEN
    RAISE EXCEPTION 'holdfast_publish: the body is a JSON object such as {"channel": "news", "data": "hi"}' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF octet_length(convert_to(name, 'UTF8')) NOT BETWEEN 1 AND 255 OR name ~ '[\x01-\x1f\x7f]' THEN
    RAISE EXCEPTION 'holdfast_publish: a channel has 1 to 255 bytes and no control byte' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF octet_length(bytes) > 8388608 THEN
    RAISE EXCEPTION 'holdfast_publish: the body has % bytes, at most 8388608', octet_length(bytes) USING ERRCODE = 'program_limit_exceeded';
  END IF;
  INSERT INTO holdfast.inbox (body) VALUES (bytes);
  PERFORM pg_notify('holdfast', '');
END $$;

-- Gives numbers: to what waits in the inbox (at most so many; NULL: all), then to
-- bodies; and lets go what is old or too much, in small bites. All under
-- one lock. Gives the head. Nobody else writes to the log.
CREATE OR REPLACE FUNCTION holdfast.holdfast_enter(bodies bytea[], most bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- The tables' left ends are full of rows that are gone: only an index passes them quickly.
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  m       holdfast.meta%ROWTYPE;
  mine    boolean;
  taken   timestamptz;
  first   bigint;
  added   bigint;
  through bigint;
  gone    bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(1215261796::bigint << 32 | 'holdfast.meta'::regclass::oid::bigint);
  -- What a node is told of is not to be lost in a crash, whatever the database's default is.
  IF current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'local', true);
  END IF;
  -- From here on each statement sees what the lock's last holder has committed.
  SELECT * INTO STRICT m FROM holdfast.meta;
  taken := clock_timestamp();
  -- Was this row written by these functions, since the server was started? If not (a restart, a
  -- copy that was put back, a replica that was promoted), the log may have had more than it has
  -- now. Then the next number is a leap away: one step may be what somebody has seen
  -- already, of another entry.
  SELECT coalesce(xmin::text::bigint = writer AND run = pg_postmaster_start_time(), false) INTO mine FROM holdfast.meta;
  first := greatest(m.head + CASE WHEN mine THEN 1000 ELSE 1000000000 END, floor(extract(epoch FROM taken) * 1000)::bigint * 1000 + m.head % 1000);

  WITH waiting AS (
    DELETE FROM holdfast.inbox WHERE seq IN (SELECT seq FROM holdfast.inbox ORDER BY seq LIMIT most) RETURNING seq, body
  ), numbered AS (
    SELECT row_number() OVER (ORDER BY own, place) AS n, body
    FROM (SELECT 0 AS own, seq AS place, body FROM waiting
          UNION ALL
          SELECT 1, place, coalesce(body, '') FROM unnest(bodies) WITH ORDINALITY AS b(body, place)) AS every
  )
  INSERT INTO holdfast.log (id, prev, at, body)
  SELECT first + (n - 1) * 1000, CASE n WHEN 1 THEN m.head ELSE first + (n - 2) * 1000 END, taken, body FROM numbered;
  GET DIAGNOSTICS added = ROW_COUNT;
  IF added > 0 THEN
    m.head := first + (added - 1) * 1000;
    m.length := m.length + added;
  END IF;

  -- From the oldest on, until one may stay.
  SELECT max(id), count(*) INTO through, gone
  FROM (SELECT id, bool_and(at < taken - m.keep OR place <= m.length - m.entries) OVER (ORDER BY id) AS goes
        FROM (SELECT id, at, row_number() OVER (ORDER BY id) AS place
              FROM holdfast.log WHERE id > m.floor ORDER BY id LIMIT 2 * added + 100) AS oldest) AS judged
  WHERE goes;
  IF gone > 0 THEN
    DELETE FROM holdfast.log WHERE id > m.floor AND id <= through;
    m.floor := through;
    m.length := m.length - gone;
  END IF;
  IF added > 0 OR gone > 0 THEN
    UPDATE holdfast.meta SET head = m.head, floor = m.floor, length = m.length,
      writer = CASE WHEN added > 0 OR mine THEN holdfast.holdfast_writer() END,
      run = CASE WHEN added > 0 THEN pg_postmaster_start_time() ELSE run END;
  END IF;
  RETURN m.head;
END $$;

-- Numbers up to 1000 of what waits. Holdfast does it as it is woken; a job may,
-- where no Holdfast runs for long.
CREATE OR REPLACE FUNCTION holdfast.holdfast_number() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
  -- Who sees nothing here needs no lock: what was committed before is numbered, or seen.
  IF EXISTS (SELECT FROM holdfast.inbox ORDER BY seq LIMIT 1) THEN
    PERFORM holdfast.holdfast_enter(NULL, 1000);
  END IF;
END $$;

-- For nodes: says how long and how many entries are kept.
CREATE OR REPLACE FUNCTION holdfast.holdfast_retain(for_ interval, count_ bigint) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  UPDATE holdfast.meta SET keep = for_, entries = count_,
    writer = CASE WHEN xmin::text::bigint = writer THEN holdfast.holdfast_writer() END
  WHERE keep <> for_ OR entries <> count_
$$;

-- For nodes: publishes bodies in one step, behind what waits. Gives the last one's id;
-- the ones before it are 1000 apart.
CREATE OR REPLACE FUNCTION holdfast.holdfast_add(bodies bytea[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_notify('holdfast', '');
  RETURN holdfast.holdfast_enter(bodies, NULL);
END $$;

-- For nodes: where the log stands, whether it knows a position, and the first
-- entries behind it, at one instant. One row at least.
CREATE OR REPLACE FUNCTION holdfast.holdfast_read(after bigint, most integer, bytes bigint)
RETURNS TABLE (start bigint, floor bigint, head bigint, known boolean, id bigint, prev bigint, at timestamptz, body bytea)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
  SELECT m.start, m.floor, m.head, after <= m.floor OR EXISTS (SELECT FROM holdfast.log AS l WHERE l.id = after), e.id, e.prev, e.at, e.body
  FROM holdfast.meta AS m LEFT JOIN (
    SELECT f.*, sum(octet_length(f.body)) OVER (ORDER BY f.id) AS through, row_number() OVER (ORDER BY f.id) AS place
    FROM (SELECT l.* FROM holdfast.log AS l WHERE l.id > greatest(after, (SELECT n.floor FROM holdfast.meta AS n)) ORDER BY l.id LIMIT most) AS f
  ) AS e ON e.through <= bytes OR e.place = 1
  ORDER BY e.id
$$;

-- For nodes: numbers what waits, lets go what is old if the caller has waited for long
-- (tend), and reads.
CREATE OR REPLACE FUNCTION holdfast.holdfast_follow(after bigint, most integer, bytes bigint, tend boolean)
RETURNS TABLE (start bigint, floor bigint, head bigint, known boolean, id bigint, prev bigint, at timestamptz, body bytea)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF tend THEN
    PERFORM holdfast.holdfast_enter(NULL, 1000);
  ELSE
    PERFORM holdfast.holdfast_number();
  END IF;
  RETURN QUERY SELECT * FROM holdfast.holdfast_read(after, most, bytes);
END $$;

-- For nodes: makes the log another one, empty and above seen, if its head is below seen
-- still; with missing, if it does not know that position still.
CREATE OR REPLACE FUNCTION holdfast.holdfast_renew(seen bigint, missing boolean) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  m       holdfast.meta%ROWTYPE;
  another bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(1215261796::bigint << 32 | 'holdfast.meta'::regclass::oid::bigint);
  SELECT * INTO STRICT m FROM holdfast.meta;
  IF m.head < seen OR missing AND seen > m.floor AND NOT EXISTS (SELECT FROM holdfast.log WHERE id = seen) THEN
    another := greatest(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, seen / 1000 + 1, m.head / 1000 + 1) * 1000
               + (m.head % 1000 + 1 + floor(random() * 999)::bigint) % 1000;
    DELETE FROM holdfast.log;
    UPDATE holdfast.meta SET start = another, floor = another, head = another, length = 0,
      writer = holdfast.holdfast_writer(), run = pg_postmaster_start_time();
    PERFORM pg_notify('holdfast', '');
  END IF;
END $$;

-- Who may call them is said above, and nobody else may.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC;

COMMIT;
