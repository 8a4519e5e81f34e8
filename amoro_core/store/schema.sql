-- The first schema of the state database. Later changes are migrations in schema.py.

-- Coordinator, groups, catalogs

-- Each coordinator that opens the database increments the epoch, and each transaction checks it: a coordinator that was
-- paused while another took over cannot write.
CREATE TABLE coordinator_epoch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL CHECK (epoch >= 0)
) STRICT;

CREATE TABLE token (
    kind TEXT PRIMARY KEY CHECK (kind <> ''),
    token_hash TEXT NOT NULL CHECK (token_hash <> '')
) STRICT;

CREATE TABLE resource_group (
    group_name TEXT PRIMARY KEY CHECK (group_name <> ''),
    scheduling_policy TEXT NOT NULL,
    properties_json TEXT NOT NULL,
    container_name TEXT NOT NULL DEFAULT 'external' CHECK (container_name <> ''),
    instances INTEGER NOT NULL DEFAULT 0 CHECK (instances >= 0),
    failed_starts INTEGER NOT NULL DEFAULT 0 CHECK (failed_starts >= 0),
    retry_at_ms INTEGER,
    start_failure TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE catalog_metadata (
    catalog_name TEXT PRIMARY KEY CHECK (catalog_name <> ''),
    origin TEXT NOT NULL,
    properties_json TEXT NOT NULL,
    allowed_locations_json TEXT NOT NULL,
    site_files_json TEXT NOT NULL DEFAULT '[]'
) STRICT;

CREATE TABLE optimizer (
    optimizer_id TEXT PRIMARY KEY CHECK (optimizer_id <> ''),
    token_hash TEXT NOT NULL UNIQUE CHECK (token_hash <> ''),
    group_name TEXT NOT NULL REFERENCES resource_group (group_name),
    threads INTEGER NOT NULL CHECK (threads >= 0),
    memory_bytes INTEGER NOT NULL CHECK (memory_bytes >= 0),
    labels_json TEXT NOT NULL,
    registered_at_ms INTEGER NOT NULL,
    draining INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    work_kinds_json TEXT NOT NULL DEFAULT '["rewrite"]',
    max_cluster_bytes INTEGER NOT NULL DEFAULT 0 CHECK (max_cluster_bytes >= 0)
) STRICT;

CREATE TABLE resource (
    resource_id TEXT PRIMARY KEY CHECK (resource_id <> ''),
    group_name TEXT NOT NULL,
    container_name TEXT NOT NULL CHECK (container_name <> ''),
    state TEXT NOT NULL CHECK (state IN ('starting', 'running', 'draining', 'stopping')),
    started_at_ms INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,
    handle TEXT NOT NULL
) STRICT;
CREATE INDEX resource_by_group ON resource (group_name);

-- Tables

-- No reference to catalog_metadata: pyiceberg's configuration names catalogs too.
-- AUTOINCREMENT: the id of a removed table is never used again.
CREATE TABLE table_identifier (
    table_id INTEGER PRIMARY KEY AUTOINCREMENT,
    catalog_name TEXT NOT NULL,
    namespace_json TEXT NOT NULL,
    table_name TEXT NOT NULL,
    UNIQUE (catalog_name, namespace_json, table_name)
) STRICT;

-- No reference to resource_group: a table's owner may name a group that does not exist (yet).
CREATE TABLE table_runtime (
    table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    table_uuid TEXT NOT NULL,
    format_version INTEGER NOT NULL CHECK (format_version >= 0),
    location TEXT NOT NULL,
    group_name TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('idle', 'pending', 'planning', 'minor_optimizing',
        'major_optimizing', 'full_optimizing', 'committing', 'refused')),
    status_since_ms INTEGER NOT NULL,
    refusal TEXT NOT NULL,
    enabled_override INTEGER CHECK (enabled_override IN (0, 1)),
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    enabled_origin TEXT NOT NULL,
    snapshot_id INTEGER,
    metadata_location TEXT NOT NULL,
    evaluated_snapshot_id INTEGER,
    evaluated_at_ms INTEGER,
    refreshed_at_ms INTEGER,
    pending_type TEXT CHECK (pending_type IN ('minor', 'major', 'full')),
    quota REAL NOT NULL CHECK (quota >= 0),
    properties_json TEXT NOT NULL,
    summary_json TEXT NOT NULL,
    scanned_at_ms INTEGER,
    refresh_at_ms INTEGER,
    health_json TEXT,
    evaluated_config TEXT NOT NULL DEFAULT '',
    format TEXT NOT NULL DEFAULT '',
    CHECK ((status = 'refused') = (refusal <> ''))
) STRICT;
CREATE INDEX table_runtime_by_uuid ON table_runtime (table_uuid);
CREATE INDEX table_runtime_by_refresh ON table_runtime (refresh_at_ms);
CREATE INDEX table_runtime_pending ON table_runtime (table_id) WHERE status = 'pending';

-- The columns by which lists of tables are sorted and filtered. Its rows are narrow: a filter without an index reads
-- the whole table.
CREATE TABLE table_listing (
    table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    catalog_name TEXT NOT NULL,
    namespace_json TEXT NOT NULL,
    table_name TEXT NOT NULL,
    search_text TEXT NOT NULL,
    status TEXT NOT NULL,
    refusal TEXT NOT NULL,
    group_name TEXT NOT NULL,
    enabled INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    health INTEGER NOT NULL CHECK (health BETWEEN 0 AND 101),
    files INTEGER NOT NULL,
    small_files INTEGER NOT NULL,
    delete_files INTEGER NOT NULL,
    data_bytes INTEGER NOT NULL,
    last_optimized_ms INTEGER NOT NULL,
    next_due_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX table_listing_by_name ON table_listing (catalog_name, namespace_json, table_name);
CREATE INDEX table_listing_by_status ON table_listing (status, table_id);
CREATE INDEX table_listing_by_group_name ON table_listing (group_name, table_id);
CREATE INDEX table_listing_by_health ON table_listing (health, table_id);
CREATE INDEX table_listing_by_files ON table_listing (files, table_id);
CREATE INDEX table_listing_by_small_files ON table_listing (small_files, table_id);
CREATE INDEX table_listing_by_delete_files ON table_listing (delete_files, table_id);
CREATE INDEX table_listing_by_data_bytes ON table_listing (data_bytes, table_id);
CREATE INDEX table_listing_by_last_optimized_ms ON table_listing (last_optimized_ms, table_id);
CREATE INDEX table_listing_by_next_due_ms ON table_listing (next_due_ms, table_id);

CREATE TABLE table_partition (
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    spec_id INTEGER NOT NULL,
    partition BLOB NOT NULL,
    minor_at_ms INTEGER,
    major_at_ms INTEGER,
    full_at_ms INTEGER,
    PRIMARY KEY (table_id, spec_id, partition),
    CHECK (minor_at_ms IS NOT NULL OR major_at_ms IS NOT NULL OR full_at_ms IS NOT NULL)
) STRICT;

CREATE TABLE table_action (
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    action_name TEXT NOT NULL CHECK (action_name <> ''),
    reason TEXT NOT NULL,
    last_at_ms INTEGER,
    next_at_ms INTEGER,
    failures INTEGER NOT NULL CHECK (failures >= 0),
    retry_at_ms INTEGER,
    fruitless INTEGER NOT NULL DEFAULT 0 CHECK (fruitless >= 0),
    paused_for TEXT NOT NULL DEFAULT '',
    paused_at_ms INTEGER CHECK ((paused_at_ms IS NULL) = (paused_for = '')),
    properties_digest TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (table_id, action_name)
) STRICT;
CREATE INDEX table_action_due ON table_action (next_at_ms) WHERE action_name <> 'optimizing';

CREATE TABLE table_blocker (
    blocker_id TEXT PRIMARY KEY CHECK (blocker_id <> ''),
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    operations_json TEXT NOT NULL CHECK (operations_json <> '[]'),
    reason TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    held_for_ms INTEGER NOT NULL CHECK (held_for_ms > 0),
    CHECK (expires_at_ms > created_at_ms)
) STRICT;
CREATE INDEX table_blocker_by_table ON table_blocker (table_id, expires_at_ms);

-- When data last came to a table: data expiry counts from it once that snapshot is expired.
CREATE TABLE table_data_commit (
    table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    table_uuid TEXT NOT NULL,
    snapshot_id INTEGER NOT NULL,
    committed_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE snapshot_lease (
    lease_id TEXT PRIMARY KEY CHECK (lease_id <> ''),
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    table_uuid TEXT NOT NULL,
    snapshot_id INTEGER NOT NULL,
    is_since INTEGER NOT NULL CHECK (is_since IN (0, 1)),
    holder TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    tag TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX snapshot_lease_by_table ON snapshot_lease (table_id, expires_at_ms);

CREATE TABLE table_digest (
    table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    snapshot_id INTEGER,
    read_at_ms INTEGER NOT NULL,
    document BLOB NOT NULL CHECK (length(document) <= 16384)
) STRICT;

CREATE TABLE table_scan (
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    source TEXT NOT NULL,
    day TEXT NOT NULL,
    filters_json TEXT NOT NULL,
    scans INTEGER NOT NULL CHECK (scans > 0),
    files_read INTEGER NOT NULL CHECK (files_read >= 0),
    files_skipped INTEGER NOT NULL CHECK (files_skipped >= 0),
    read_bytes INTEGER NOT NULL CHECK (read_bytes >= 0),
    PRIMARY KEY (table_id, source, day, filters_json)
) STRICT;
CREATE INDEX table_scan_by_day ON table_scan (day);

CREATE TABLE table_cluster_choice (
    table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    columns_json TEXT NOT NULL,
    strategy TEXT NOT NULL CHECK (strategy <> ''),
    chosen_at_ms INTEGER NOT NULL,
    scans INTEGER NOT NULL CHECK (scans >= 0),
    saved REAL NOT NULL CHECK (saved >= 0),
    evidence_json TEXT NOT NULL
) STRICT;

-- Groups of files whose rows are ordered; the names of their files end in the id of the group.
CREATE TABLE cluster_group (
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    table_uuid TEXT NOT NULL,
    group_id TEXT NOT NULL CHECK (group_id <> ''),
    layout_json TEXT NOT NULL,
    depth_json TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (table_id, group_id)
) STRICT;

-- Processes

-- Statuses and lanes are rows, so that a new one needs no new schema.
CREATE TABLE process_status (
    status TEXT PRIMARY KEY CHECK (status <> ''),
    is_active INTEGER NOT NULL CHECK (is_active IN (0, 1)),
    UNIQUE (status, is_active)
) STRICT;

CREATE TABLE process_lane (
    lane TEXT PRIMARY KEY CHECK (lane <> '')
) STRICT;

-- The reference on status and is_active together: an active process has not finished, and the other way round.
-- Two catalogs may name one table: it is processed under one of its names at a time.
-- max_commits: 0 for one commit of everything, else the number of partial commits at most.
CREATE TABLE table_process (
    process_id TEXT PRIMARY KEY CHECK (process_id <> ''),
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    process_type TEXT NOT NULL CHECK (process_type <> ''),
    action_name TEXT NOT NULL CHECK (action_name <> ''),
    lane TEXT NOT NULL REFERENCES process_lane (lane),
    status TEXT NOT NULL,
    is_active INTEGER NOT NULL,
    trigger_word TEXT NOT NULL,
    reason TEXT NOT NULL,
    table_uuid TEXT NOT NULL,
    format_version INTEGER NOT NULL,
    snapshot_id INTEGER NOT NULL,
    sequence_number INTEGER NOT NULL CHECK (sequence_number >= 0),
    schema_id INTEGER NOT NULL,
    last_column_id INTEGER NOT NULL,
    detail TEXT NOT NULL,
    commits INTEGER NOT NULL CHECK (commits IN (0, 1)),
    created_at_ms INTEGER NOT NULL,
    finished_at_ms INTEGER,
    failure_code TEXT NOT NULL,
    failure TEXT NOT NULL,
    max_retries INTEGER NOT NULL CHECK (max_retries >= 0),
    allow_partial_commit INTEGER NOT NULL CHECK (allow_partial_commit IN (0, 1)),
    commit_tries INTEGER NOT NULL CHECK (commit_tries >= 0),
    receipt_json TEXT,
    condition TEXT NOT NULL,
    delay_json TEXT,
    left_over INTEGER NOT NULL CHECK (left_over IN (0, 1)),
    max_commits INTEGER NOT NULL DEFAULT 0 CHECK (max_commits >= 0),
    FOREIGN KEY (status, is_active) REFERENCES process_status (status, is_active),
    CHECK (receipt_json IS NULL OR status IN ('clearing', 'success', 'partial')),
    CHECK (is_active = (finished_at_ms IS NULL)),
    CHECK (left_over = 0 OR finished_at_ms IS NOT NULL)
) STRICT;
CREATE INDEX table_process_by_table ON table_process (table_id, created_at_ms);
CREATE INDEX table_process_by_time ON table_process (created_at_ms);
CREATE INDEX table_process_active_by_time ON table_process (created_at_ms, process_id) WHERE finished_at_ms IS NULL;
CREATE INDEX table_process_ended ON table_process (finished_at_ms) WHERE finished_at_ms IS NOT NULL;
CREATE INDEX table_process_left_over ON table_process (process_id) WHERE left_over = 1;
CREATE UNIQUE INDEX table_process_active ON table_process (table_id, lane)
    WHERE finished_at_ms IS NULL AND status NOT IN ('held', 'requested');
CREATE UNIQUE INDEX table_process_active_uuid ON table_process (table_uuid, lane)
    WHERE finished_at_ms IS NULL AND status NOT IN ('held', 'requested');

CREATE TABLE process_plan (
    process_id TEXT PRIMARY KEY REFERENCES table_process (process_id) ON DELETE CASCADE,
    document_json TEXT NOT NULL,
    measures_json TEXT NOT NULL,
    options_json TEXT NOT NULL,
    keep_ms INTEGER NOT NULL CHECK (keep_ms >= 0),
    start_at_ms INTEGER,
    expires_at_ms INTEGER
) STRICT;

-- Files that a process removes after its commit: written before the first deletion, taken out as they are deleted,
-- marked where they stay.
CREATE TABLE process_clearing (
    process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
    path TEXT NOT NULL CHECK (path <> ''),
    kept INTEGER NOT NULL CHECK (kept IN (0, 1)),
    PRIMARY KEY (process_id, path)
) STRICT;

-- Groups of a process that will not be committed, though others are.
CREATE TABLE process_dropped_group (
    process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
    task_number INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (process_id, task_number)
) STRICT;

-- A part is done at most once, whatever a caller believes.
CREATE TABLE commit_attempt (
    process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
    attempt_number INTEGER NOT NULL CHECK (attempt_number >= 1),
    evidence_json TEXT NOT NULL CHECK (evidence_json <> ''),
    payload BLOB NOT NULL,
    groups_json TEXT NOT NULL,
    files_json TEXT NOT NULL,
    metadata_files_json TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('sent', 'done', 'conflict', 'refused', 'unknown', 'refuted')),
    created_at_ms INTEGER NOT NULL,
    receipt_json TEXT NOT NULL,
    part INTEGER NOT NULL DEFAULT 1 CHECK (part >= 1),
    PRIMARY KEY (process_id, attempt_number)
) STRICT;
CREATE UNIQUE INDEX commit_attempt_done ON commit_attempt (process_id, part) WHERE outcome = 'done';

-- Bytes that tasks fetch besides their input.
CREATE TABLE work_blob (
    process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
    sha256 TEXT NOT NULL,
    piece INTEGER NOT NULL CHECK (piece >= 0),
    content BLOB NOT NULL,
    PRIMARY KEY (process_id, sha256, piece)
) STRICT;

-- Files that wait for their deletion. A batch is written before any of its files is touched; its paths are compressed.
CREATE TABLE condemned_batch (
    batch_id INTEGER PRIMARY KEY,
    process_id TEXT NOT NULL CHECK (process_id <> ''),
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    table_uuid TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind <> ''),
    status TEXT NOT NULL CHECK (status IN ('written', 'waiting', 'moving', 'moved', 'returning', 'deleting',
        'deleted', 'restored')),
    purge_at_ms INTEGER NOT NULL,
    files INTEGER NOT NULL CHECK (files >= 0),
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    tries INTEGER NOT NULL CHECK (tries >= 0),
    content BLOB NOT NULL,
    moved_to TEXT NOT NULL DEFAULT '',
    CHECK ((moved_to = '') = (status NOT IN ('moving', 'moved',
        'returning')) OR (moved_to <> '' AND status = 'deleting'))
) STRICT;
CREATE INDEX condemned_batch_by_table ON condemned_batch (table_id, status, purge_at_ms);
CREATE INDEX condemned_batch_by_process ON condemned_batch (process_id);

CREATE TABLE saved_plan (
    plan_id TEXT NOT NULL PRIMARY KEY CHECK (plan_id <> ''),
    table_name TEXT NOT NULL,
    saved_at_ms INTEGER NOT NULL,
    content BLOB NOT NULL CHECK (length(content) <= 262144)
) STRICT;
CREATE INDEX saved_plan_by_time ON saved_plan (saved_at_ms);

-- Tasks

-- The reference to optimizer: a registration cannot be removed while it holds a task, or nobody would reset the task.
-- One rule for each status: every write of a task checks it, and SQLite would build an index for each IN list.
CREATE TABLE task_runtime (
    process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
    task_number INTEGER NOT NULL CHECK (task_number >= 1),
    table_id INTEGER NOT NULL,
    group_name TEXT NOT NULL,
    status TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    optimizer_id TEXT REFERENCES optimizer (optimizer_id),
    thread_id INTEGER,
    failed_runs INTEGER NOT NULL CHECK (failed_runs >= 0),
    lost_attempts INTEGER NOT NULL CHECK (lost_attempts >= 0),
    lost_optimizers_json TEXT NOT NULL,
    scheduled_at_ms INTEGER,
    acked_at_ms INTEGER,
    finished_at_ms INTEGER,
    failure_code TEXT NOT NULL,
    failure TEXT NOT NULL,
    cost_bytes INTEGER NOT NULL,
    partition_path TEXT NOT NULL,
    input_files INTEGER NOT NULL,
    input_bytes INTEGER NOT NULL,
    work_kind TEXT NOT NULL DEFAULT 'rewrite' CHECK (work_kind <> ''),
    input_rows INTEGER NOT NULL DEFAULT 0 CHECK (input_rows >= 0),
    ended_optimizer_id TEXT,
    ended_thread_id INTEGER,
    stage INTEGER NOT NULL DEFAULT 0 CHECK (stage >= 0),
    PRIMARY KEY (process_id, task_number),
    CHECK (CASE status
        WHEN 'planned' THEN
            optimizer_id IS NULL AND thread_id IS NULL AND acked_at_ms IS NULL AND finished_at_ms IS NULL
        WHEN 'scheduled' THEN
            optimizer_id IS NOT NULL AND thread_id IS NOT NULL AND attempt >= 1
            AND scheduled_at_ms IS NOT NULL AND acked_at_ms IS NULL AND finished_at_ms IS NULL
        WHEN 'acked' THEN
            optimizer_id IS NOT NULL AND thread_id IS NOT NULL AND attempt >= 1
            AND scheduled_at_ms IS NOT NULL AND acked_at_ms IS NOT NULL AND finished_at_ms IS NULL
        WHEN 'success' THEN
            optimizer_id IS NULL AND thread_id IS NULL AND attempt >= 1
            AND scheduled_at_ms IS NOT NULL AND acked_at_ms IS NOT NULL AND finished_at_ms IS NOT NULL
        WHEN 'failed' THEN
            optimizer_id IS NULL AND thread_id IS NULL AND attempt >= 1
            AND scheduled_at_ms IS NOT NULL AND acked_at_ms IS NOT NULL AND finished_at_ms IS NOT NULL
        WHEN 'canceled' THEN
            optimizer_id IS NULL AND thread_id IS NULL AND finished_at_ms IS NOT NULL
        ELSE 0
    END),
    CHECK (failed_runs + lost_attempts <= attempt)
) STRICT;
CREATE INDEX task_runtime_planned ON task_runtime (group_name, process_id, task_number) WHERE status = 'planned';
CREATE INDEX task_runtime_held ON task_runtime (process_id, task_number) WHERE optimizer_id IS NOT NULL;
CREATE INDEX task_runtime_held_by_table ON task_runtime (group_name, table_id) WHERE optimizer_id IS NOT NULL;
CREATE INDEX task_runtime_by_optimizer ON task_runtime (optimizer_id) WHERE optimizer_id IS NOT NULL;
CREATE INDEX task_runtime_ended ON task_runtime (finished_at_ms) WHERE finished_at_ms IS NOT NULL;
CREATE TRIGGER task_sum_insert AFTER INSERT ON task_runtime
BEGIN
    INSERT INTO task_sum (process_id, status, group_name, work_kind, tasks, input_bytes)
    VALUES (NEW.process_id, NEW.status, NEW.group_name, NEW.work_kind, 1, NEW.input_bytes)
    ON CONFLICT DO UPDATE SET tasks = tasks + 1, input_bytes = input_bytes + excluded.input_bytes;
END;
CREATE TRIGGER task_sum_update AFTER UPDATE ON task_runtime
WHEN (OLD.process_id, OLD.status, OLD.group_name, OLD.work_kind, OLD.input_bytes)
    IS NOT (NEW.process_id, NEW.status, NEW.group_name, NEW.work_kind, NEW.input_bytes)
BEGIN
    UPDATE task_sum SET tasks = tasks - 1, input_bytes = input_bytes - OLD.input_bytes
    WHERE (process_id, status, group_name, work_kind) = (OLD.process_id, OLD.status, OLD.group_name, OLD.work_kind);
    INSERT INTO task_sum (process_id, status, group_name, work_kind, tasks, input_bytes)
    VALUES (NEW.process_id, NEW.status, NEW.group_name, NEW.work_kind, 1, NEW.input_bytes)
    ON CONFLICT DO UPDATE SET tasks = tasks + 1, input_bytes = input_bytes + excluded.input_bytes;
END;
CREATE TRIGGER task_sum_delete AFTER DELETE ON task_runtime
BEGIN
    UPDATE task_sum SET tasks = tasks - 1, input_bytes = input_bytes - OLD.input_bytes
    WHERE (process_id, status, group_name, work_kind) = (OLD.process_id, OLD.status, OLD.group_name, OLD.work_kind);
END;

-- Apart from task_runtime, so that its rows stay small: an ack must not write the payload again.
CREATE TABLE task_payload (
    process_id TEXT NOT NULL,
    task_number INTEGER NOT NULL,
    input BLOB NOT NULL,
    output BLOB,
    output_attempt INTEGER CHECK (output_attempt >= 1),
    PRIMARY KEY (process_id, task_number),
    FOREIGN KEY (process_id, task_number) REFERENCES task_runtime (process_id, task_number) ON DELETE CASCADE,
    CHECK ((output IS NULL) = (output_attempt IS NULL))
) STRICT;

-- The tasks of a process by status, group and kind of work; triggers of task_runtime keep it.
CREATE TABLE task_sum (
    process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
    status TEXT NOT NULL,
    group_name TEXT NOT NULL,
    work_kind TEXT NOT NULL,
    tasks INTEGER NOT NULL,
    input_bytes INTEGER NOT NULL,
    PRIMARY KEY (process_id, status, group_name, work_kind)
) STRICT, WITHOUT ROWID;

-- Written when an attempt ends; until then task_runtime has it.
CREATE TABLE task_attempt (
    process_id TEXT NOT NULL REFERENCES table_process (process_id) ON DELETE CASCADE,
    task_number INTEGER NOT NULL CHECK (task_number > 0),
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    optimizer_id TEXT NOT NULL CHECK (optimizer_id <> ''),
    thread_id INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('success', 'failed', 'lost', 'returned', 'canceled')),
    scheduled_at_ms INTEGER NOT NULL,
    acked_at_ms INTEGER,
    finished_at_ms INTEGER NOT NULL,
    failure_code TEXT NOT NULL,
    failure TEXT NOT NULL,
    input_rows INTEGER NOT NULL CHECK (input_rows >= 0),
    input_bytes INTEGER NOT NULL CHECK (input_bytes >= 0),
    PRIMARY KEY (process_id, task_number, attempt)
) STRICT, WITHOUT ROWID;

-- History, metrics, access

-- Numbers are never used again: a follower asks for what is above the last one. No references: an event outlives its
-- table and process.
CREATE TABLE event (
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind <> ''),
    table_id INTEGER NOT NULL,
    table_name TEXT NOT NULL,
    process_id TEXT NOT NULL,
    optimizer_id TEXT NOT NULL,
    group_name TEXT NOT NULL,
    text TEXT NOT NULL,
    data_json TEXT NOT NULL
) STRICT;
CREATE INDEX event_by_time ON event (at_ms);
CREATE INDEX event_by_kind ON event (kind, at_ms);
CREATE INDEX event_by_table ON event (table_id, at_ms) WHERE table_id <> 0;
CREATE INDEX event_by_process ON event (process_id, at_ms) WHERE process_id <> '';

-- Append only; the outcome of a call that has begun is set once.
CREATE TABLE audit_event (
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    is_user INTEGER NOT NULL CHECK (is_user IN (0, 1)),
    said TEXT NOT NULL,
    role TEXT NOT NULL,
    pattern TEXT NOT NULL,
    address TEXT NOT NULL,
    way TEXT NOT NULL,
    operation TEXT NOT NULL CHECK (operation <> ''),
    object TEXT NOT NULL,
    parameters_json TEXT NOT NULL,
    is_dry_run INTEGER NOT NULL CHECK (is_dry_run IN (0, 1)),
    outcome TEXT NOT NULL CHECK (outcome IN ('begun', 'done', 'refused', 'failed')),
    code TEXT NOT NULL
) STRICT;
CREATE INDEX audit_event_by_time ON audit_event (at_ms);
CREATE INDEX audit_event_by_actor ON audit_event (actor);
CREATE INDEX audit_event_by_operation ON audit_event (operation, at_ms);
CREATE TRIGGER audit_event_stays BEFORE UPDATE ON audit_event
WHEN OLD.outcome <> 'begun'
    OR NEW.at_ms IS NOT OLD.at_ms
    OR NEW.actor IS NOT OLD.actor
    OR NEW.is_user IS NOT OLD.is_user
    OR NEW.said IS NOT OLD.said
    OR NEW.role IS NOT OLD.role
    OR NEW.address IS NOT OLD.address
    OR NEW.way IS NOT OLD.way
    OR NEW.operation IS NOT OLD.operation
    OR NEW.object IS NOT OLD.object
    OR NEW.parameters_json IS NOT OLD.parameters_json
BEGIN
    SELECT RAISE(ABORT, 'audit_event is append only');
END;

CREATE TABLE series (
    series_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL CHECK (name <> ''),
    label TEXT NOT NULL,
    UNIQUE (name, label)
) STRICT;

CREATE TABLE series_point (
    series_id INTEGER NOT NULL REFERENCES series (series_id) ON DELETE CASCADE,
    step_s INTEGER NOT NULL CHECK (step_s > 0),
    at_ms INTEGER NOT NULL,
    n INTEGER NOT NULL CHECK (n > 0),
    sum INTEGER NOT NULL,
    min INTEGER NOT NULL,
    max INTEGER NOT NULL,
    PRIMARY KEY (series_id, step_s, at_ms)
) STRICT, WITHOUT ROWID;

CREATE TABLE table_series (
    table_id INTEGER NOT NULL REFERENCES table_identifier (table_id) ON DELETE CASCADE,
    step_s INTEGER NOT NULL CHECK (step_s > 0),
    at_ms INTEGER NOT NULL,
    health INTEGER NOT NULL,
    data_files INTEGER NOT NULL,
    small_files INTEGER NOT NULL,
    delete_files INTEGER NOT NULL,
    data_bytes INTEGER NOT NULL,
    records INTEGER NOT NULL,
    PRIMARY KEY (table_id, step_s, at_ms)
) STRICT, WITHOUT ROWID;

-- Requests over HTTP with an idempotency key, and their answers.
CREATE TABLE keyed_request (
    key_hash TEXT NOT NULL PRIMARY KEY,
    request_hash TEXT NOT NULL,
    begun_at_ms INTEGER NOT NULL,
    status INTEGER CHECK (status BETWEEN 100 AND 599),
    media_type TEXT NOT NULL DEFAULT '',
    location TEXT NOT NULL DEFAULT '',
    content BLOB NOT NULL DEFAULT x''
) STRICT;
CREATE INDEX keyed_request_by_time ON keyed_request (begun_at_ms);

CREATE TABLE access_token (
    token_name TEXT PRIMARY KEY CHECK (token_name <> ''),
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin', 'enrolment')),
    token_hash TEXT NOT NULL UNIQUE CHECK (token_hash <> ''),
    created_at_ms INTEGER NOT NULL,
    pattern TEXT NOT NULL DEFAULT '',
    expires_at_ms INTEGER
) STRICT;

CREATE TABLE user_account (
    user_name TEXT PRIMARY KEY CHECK (user_name <> ''),
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    pattern TEXT NOT NULL CHECK (pattern = '' OR role = 'operator'),
    password_hash TEXT NOT NULL CHECK (password_hash <> ''),
    created_at_ms INTEGER NOT NULL
) STRICT;

-- Sessions hold no secret: the browser has the id. No reference: a session of a removed account matches no account.
CREATE TABLE http_session (
    session_hash TEXT PRIMARY KEY CHECK (session_hash <> ''),
    holder TEXT NOT NULL CHECK (holder IN ('user', 'token', 'person')),
    account_name TEXT NOT NULL CHECK (account_name <> ''),
    fingerprint TEXT NOT NULL CHECK (fingerprint <> ''),
    created_at_ms INTEGER NOT NULL,
    seen_at_ms INTEGER NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('', 'viewer', 'operator', 'admin') AND (role <> '') = (holder = 'person')),
    pattern TEXT NOT NULL CHECK (pattern = '' OR role = 'operator')
) STRICT;
CREATE INDEX http_session_by_account ON http_session (holder, account_name);
CREATE INDEX http_session_by_use ON http_session (seen_at_ms);

-- First rows

INSERT INTO coordinator_epoch (id, epoch) VALUES (1, 0);
INSERT INTO resource_group (group_name, scheduling_policy, properties_json) VALUES ('default', 'quota', '{}');
INSERT INTO process_status (status, is_active) VALUES
    ('requested', 1), ('held', 1), ('running', 1), ('committing', 1), ('commit_unknown', 1), ('clearing', 1),
    ('success', 0), ('partial', 0), ('failed', 0), ('closed', 0);
INSERT INTO process_lane (lane) VALUES ('files'), ('metadata'), ('storage'), ('statistics'), ('layout');
