"""The schema, as ordered steps that sqlite-utils applies once each (table `_sqlite_migrations`).

A finished page lives in `pages`, which Datasette and `sqlite-utils search` open as it is. The work still to do lives in
narrow rows of `page_jobs`, so that claims and heartbeats never rewrite a row that carries text, and the
full-text triggers fire once per page read instead of once per lease.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations

from storage.failpoints import reach
from storage.names import name_key

migrations = Migrations("ocrd")

SCHEMA = """
CREATE TABLE roots (
  id INTEGER PRIMARY KEY,
  path TEXT NOT NULL,                 -- for people: undecodable bytes escaped
  path_bytes BLOB NOT NULL UNIQUE,    -- what the file system knows it by
  recursive INTEGER NOT NULL DEFAULT 1,
  watched INTEGER NOT NULL DEFAULT 0, -- by the running daemon
  mode TEXT NOT NULL DEFAULT 'native',-- native | polling
  state TEXT NOT NULL DEFAULT 'ok',   -- ok | gone
  message TEXT,
  added_at REAL NOT NULL,
  scanned_at REAL
);
CREATE TABLE documents (              -- one per content, whatever its names
  id INTEGER PRIMARY KEY,
  sha256 TEXT NOT NULL UNIQUE,
  size INTEGER NOT NULL,
  media_type TEXT,
  title TEXT,
  state TEXT NOT NULL,                -- queued | running (a page is leased) | done | failed | needs_password
  pages INTEGER,                      -- NULL until opened
  pages_pending INTEGER NOT NULL DEFAULT 0,  -- these five are kept by the trigger page_jobs_count
  pages_leased INTEGER NOT NULL DEFAULT 0,
  pages_done INTEGER NOT NULL DEFAULT 0,     -- read, blank ones included
  pages_blank INTEGER NOT NULL DEFAULT 0,
  pages_failed INTEGER NOT NULL DEFAULT 0,
  priority INTEGER NOT NULL DEFAULT 0,     -- lower goes first: size class, see storage.jobs
  parked INTEGER NOT NULL DEFAULT 0,       -- 1: no file to read it from (superseded, missing, root gone)
  not_before REAL NOT NULL DEFAULT 0,      -- put off until then (back-off); 0 = not put off
  deferrals INTEGER NOT NULL DEFAULT 0,    -- in a row, without a page read between
  error_code TEXT, error_message TEXT, remedy TEXT,
  warnings TEXT NOT NULL DEFAULT '[]',     -- JSON [{code, message}] of the file as a whole
  attachments TEXT NOT NULL DEFAULT '[]',  -- JSON names of embedded files
  labels TEXT,                             -- JSON printed page labels
  options TEXT NOT NULL DEFAULT '{}',      -- JSON what `retry` asked for: engine, dpi, text_layer…
  superseded_by INTEGER REFERENCES documents(id) ON DELETE SET NULL,
  added_at REAL NOT NULL,
  started_at REAL, finished_at REAL
);
CREATE INDEX documents_ready ON documents(priority, id) WHERE pages_pending > 0 AND not_before = 0 AND parked = 0;
CREATE INDEX documents_oldest ON documents(id) WHERE pages_pending > 0 AND not_before = 0 AND parked = 0;
CREATE INDEX documents_deferred ON documents(not_before) WHERE not_before > 0;
CREATE INDEX documents_state ON documents(state, finished_at);
CREATE INDEX documents_superseded ON documents(superseded_by) WHERE superseded_by IS NOT NULL;
CREATE INDEX documents_counts ON documents(superseded_by, pages, pages_done, pages_failed, pages_blank);
CREATE TABLE files (                  -- every path seen; many may carry one document
  id INTEGER PRIMARY KEY,
  root_id INTEGER REFERENCES roots(id) ON DELETE SET NULL,
  path TEXT NOT NULL,
  path_bytes BLOB NOT NULL UNIQUE,
  name_key TEXT NOT NULL,             -- file name, folded as search folds text: what --name searches
  size INTEGER NOT NULL,              -- -1: whatever it is now, it must be read again
  mtime_ns INTEGER NOT NULL,
  document_id INTEGER REFERENCES documents(id) ON DELETE SET NULL,
  state TEXT NOT NULL,                -- intake (to be hashed and opened) | linked | failed
  attempts INTEGER NOT NULL DEFAULT 0,     -- of hashing and opening it
  suspect INTEGER NOT NULL DEFAULT 0, -- was in flight when a worker died: taken in alone, so that blame is certain
  not_before REAL NOT NULL DEFAULT 0, -- earliest next try of the intake (back-off)
  deferrals INTEGER NOT NULL DEFAULT 0,    -- in a row
  lease_owner TEXT, lease_expires REAL,    -- of the intake, or of writing its sidecars
  error_code TEXT, error_message TEXT, remedy TEXT,
  out_dir_bytes BLOB,                 -- where its sidecars go; NULL = beside it
  base_bytes BLOB,                    -- out_dir mirrors the tree below this folder
  sidecar_state TEXT NOT NULL DEFAULT 'none',  -- none | due | written | failed
  publish_after REAL,                 -- earliest (next) try of writing its sidecars; NULL = nothing to write
  markdown_path TEXT, json_path TEXT, sidecar_note TEXT,
  sidecar_attempts INTEGER NOT NULL DEFAULT 0,
  first_seen REAL NOT NULL, last_seen REAL NOT NULL, missing_since REAL
);
CREATE INDEX files_document ON files(document_id, state, sidecar_state, missing_since, lease_owner, error_code);
CREATE INDEX files_intake ON files(not_before, id) WHERE state = 'intake' AND lease_owner IS NULL;
CREATE INDEX files_publish ON files(publish_after, id) WHERE publish_after IS NOT NULL AND lease_owner IS NULL;
CREATE INDEX files_leased ON files(lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX files_root ON files(root_id);
CREATE INDEX files_name ON files(name_key);
CREATE INDEX files_unfinished ON files(id)
  WHERE state <> 'linked' OR sidecar_state IN ('due', 'failed') OR missing_since IS NOT NULL;
CREATE TABLE page_jobs (              -- the unit of work, retry and resume: one narrow row per page
  document_id INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  page INTEGER NOT NULL,              -- from 1
  state TEXT NOT NULL DEFAULT 'pending',   -- pending | leased | done | blank | failed
  attempts INTEGER NOT NULL DEFAULT 0,
  suspect INTEGER NOT NULL DEFAULT 0, -- was in flight when a worker died: read it alone, so that blame is certain
  lease_owner TEXT, lease_expires REAL,
  error_code TEXT, error_message TEXT, remedy TEXT,
  finished_at REAL,
  PRIMARY KEY (document_id, page)
) WITHOUT ROWID;
CREATE INDEX page_jobs_open ON page_jobs(document_id, page) WHERE state = 'pending';
CREATE INDEX page_jobs_leased ON page_jobs(lease_owner) WHERE state = 'leased';
CREATE INDEX page_jobs_tried ON page_jobs(document_id, attempts) WHERE attempts > 0;
CREATE INDEX page_jobs_error ON page_jobs(document_id, page) WHERE error_code IS NOT NULL;
CREATE INDEX page_jobs_finished ON page_jobs(finished_at) WHERE finished_at IS NOT NULL;
CREATE TABLE pages (                  -- what was read; a re-reading replaces the row
  id INTEGER PRIMARY KEY,
  document_id INTEGER NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
  page INTEGER NOT NULL,
  label TEXT,
  text TEXT NOT NULL,
  markdown TEXT NOT NULL,
  source TEXT NOT NULL,               -- text-layer | engine | blank
  engine TEXT, model TEXT, revision TEXT, prompt TEXT,
  layer TEXT NOT NULL, layer_reason TEXT NOT NULL DEFAULT '',
  stop_reason TEXT NOT NULL,
  confidence REAL,
  width_pt REAL NOT NULL, height_pt REAL NOT NULL,
  dpi REAL, width_px INTEGER, height_px INTEGER,
  tokens INTEGER, target_passes INTEGER, drafted INTEGER, accepted INTEGER,
  warnings TEXT NOT NULL DEFAULT '[]',
  seconds TEXT NOT NULL DEFAULT '{}',
  read_at REAL NOT NULL,
  UNIQUE (document_id, page)
);
CREATE INDEX pages_warned ON pages(document_id, page, warnings) WHERE warnings <> '[]';
CREATE TABLE blocks (
  page_id INTEGER NOT NULL REFERENCES pages(id) ON DELETE CASCADE,
  position INTEGER NOT NULL,          -- reading order, from 0
  category TEXT NOT NULL,
  "left" REAL NOT NULL, top REAL NOT NULL, "right" REAL NOT NULL, bottom REAL NOT NULL,  -- page points, top-left origin
  text TEXT NOT NULL,
  markdown TEXT NOT NULL,
  level INTEGER, confidence REAL,
  lines TEXT NOT NULL DEFAULT '[]',   -- JSON, see storage.lines
  PRIMARY KEY (page_id, position)
) WITHOUT ROWID;
CREATE TABLE workers (
  owner TEXT PRIMARY KEY,             -- host:pid:start time, so that a reused pid is no old owner
  pid INTEGER NOT NULL, host TEXT NOT NULL, role TEXT NOT NULL,   -- supervisor | worker
  started_at REAL NOT NULL, heartbeat REAL NOT NULL,
  path TEXT, page INTEGER, stage TEXT, stage_since REAL,
  rss_mb REAL, peak_rss_mb REAL
);
CREATE TABLE control (                -- watcher, engine, pause:user, pause:disk_full…
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
);
CREATE VIEW file_status AS            -- what a person calls the state of a file: exactly one of six
SELECT files.id, files.path, CASE
    WHEN files.missing_since IS NOT NULL THEN 'missing'
    WHEN files.state = 'intake' THEN CASE WHEN files.lease_owner IS NULL THEN 'queued' ELSE 'running' END
    WHEN files.state = 'failed' THEN CASE files.error_code WHEN 'password' THEN 'needs_password' ELSE 'failed' END
    WHEN documents.state = 'done' AND files.sidecar_state = 'due' THEN 'running'
    WHEN documents.state = 'done' AND files.sidecar_state = 'failed' THEN 'failed'
    ELSE COALESCE(documents.state, 'failed') END AS state,
  documents.title, documents.media_type, documents.pages, documents.pages_done, documents.pages_blank,
  documents.pages_failed, documents.warnings, documents.finished_at, files.attempts, files.sidecar_attempts,
  CASE WHEN files.error_code IS NULL THEN documents.error_code ELSE files.error_code END AS error_code,
  CASE WHEN files.error_code IS NULL THEN documents.error_message ELSE files.error_message END AS error_message,
  CASE WHEN files.error_code IS NULL THEN documents.remedy ELSE files.remedy END AS remedy,
  files.markdown_path, files.json_path, files.sidecar_note, files.document_id
FROM files LEFT JOIN documents ON documents.id = files.document_id
"""

# The counters and the state of a document follow its page rows, whoever changes them.
PAGE_JOBS_COUNT = """
CREATE TRIGGER page_jobs_count AFTER UPDATE OF state ON page_jobs WHEN old.state <> new.state BEGIN
  UPDATE documents SET
    pages_pending = pages_pending + (new.state = 'pending') - (old.state = 'pending'),
    pages_leased = pages_leased + (new.state = 'leased') - (old.state = 'leased'),
    pages_done = pages_done + (new.state IN ('done', 'blank')) - (old.state IN ('done', 'blank')),
    pages_blank = pages_blank + (new.state = 'blank') - (old.state = 'blank'),
    pages_failed = pages_failed + (new.state = 'failed') - (old.state = 'failed')
  WHERE id = new.document_id;
  UPDATE documents SET
    state = CASE WHEN pages_leased > 0 THEN 'running' WHEN pages_pending > 0 THEN 'queued'
                 WHEN pages_done > 0 THEN 'done' ELSE 'failed' END,
    finished_at = CASE WHEN pages_leased + pages_pending > 0 THEN NULL ELSE finished_at END
  WHERE id = new.document_id;
END
"""


@migrations()
def schema(db: Database) -> None:
    """Tables and indexes."""
    for statement in SCHEMA.split(";\n"):  # executescript() would commit the migration's transaction
        if statement.strip():
            db.execute(statement)
    db.execute(PAGE_JOBS_COUNT)
    reach("migrate.step")


# What sqlite-utils' enable_fts makes, but for `prefix`, which it has no argument for: a search for `sta*` takes a
# third to an eighth of the time at 100,000 pages, for 1 KB more per page.
PAGES_FTS = """
CREATE VIRTUAL TABLE "pages_fts" USING FTS5 (
    "text", tokenize='unicode61 remove_diacritics 2', prefix='2 3', content="pages"
);;
CREATE TRIGGER "pages_ai" AFTER INSERT ON "pages" BEGIN
  INSERT INTO "pages_fts" (rowid, "text") VALUES (new.rowid, new."text");
END;;
CREATE TRIGGER "pages_ad" AFTER DELETE ON "pages" BEGIN
  INSERT INTO "pages_fts" ("pages_fts", rowid, "text") VALUES('delete', old.rowid, old."text");
END;;
CREATE TRIGGER "pages_au" AFTER UPDATE ON "pages" BEGIN
  INSERT INTO "pages_fts" ("pages_fts", rowid, "text") VALUES('delete', old.rowid, old."text");
  INSERT INTO "pages_fts" (rowid, "text") VALUES (new.rowid, new."text");
END
"""


@migrations()
def full_text(db: Database) -> None:
    """Full-text index over `pages`, and bigrams beside it for scripts written without spaces."""
    for statement in PAGES_FTS.split(";;\n"):
        db.execute(statement)
    # FTS5's unicode61 takes a CJK run for one word, and its trigram tokenizer misses words of 1 and 2
    # characters. So CJK runs are also kept as overlapping bigrams and single characters, one row per page that has any.
    db.table("page_grams").create({"page_id": int, "grams": str}, pk="page_id", not_null={"grams"})
    db.table("page_grams").enable_fts(["grams"], tokenize="unicode61", create_triggers=True)
    db.execute(
        "CREATE TRIGGER pages_grams_ad AFTER DELETE ON pages BEGIN DELETE FROM page_grams WHERE page_id = old.id; END"
    )
    # Pages read before there was an index.
    db.execute("INSERT INTO pages_fts(pages_fts) VALUES ('rebuild')")
    reach("migrate.step")


@migrations()
def attempts(db: Database) -> None:
    """The ways in which a page was tried: JSON [{rung, stop_reason, tokens, seconds}]."""
    db.execute("ALTER TABLE pages ADD COLUMN attempts TEXT NOT NULL DEFAULT '[]'")
    reach("migrate.step")


# As in the first step, but: a file nobody holds waits, and one that is to be opened anew has no error of the time
# before.
FILE_STATUS = """
CREATE VIEW file_status AS            -- what a person calls the state of a file: exactly one of six
SELECT files.id, files.path, CASE
    WHEN files.missing_since IS NOT NULL THEN 'missing'
    WHEN files.state = 'intake' THEN CASE WHEN files.lease_owner IS NULL THEN 'queued' ELSE 'running' END
    WHEN files.state = 'failed' THEN CASE files.error_code WHEN 'password' THEN 'needs_password' ELSE 'failed' END
    WHEN documents.state = 'done' AND files.sidecar_state = 'due'
      THEN CASE WHEN files.lease_owner IS NULL THEN 'queued' ELSE 'running' END
    WHEN documents.state = 'done' AND files.sidecar_state = 'failed' THEN 'failed'
    ELSE COALESCE(documents.state, 'failed') END AS state,
  documents.title, documents.media_type, documents.pages, documents.pages_done, documents.pages_blank,
  documents.pages_failed, documents.warnings, documents.finished_at, files.attempts, files.sidecar_attempts,
  CASE WHEN files.error_code IS NOT NULL THEN files.error_code
    WHEN files.state <> 'intake' THEN documents.error_code END AS error_code,
  CASE WHEN files.error_code IS NOT NULL THEN files.error_message
    WHEN files.state <> 'intake' THEN documents.error_message END AS error_message,
  CASE WHEN files.error_code IS NOT NULL THEN files.remedy
    WHEN files.state <> 'intake' THEN documents.remedy END AS remedy,
  files.markdown_path, files.json_path, files.sidecar_note, files.document_id
FROM files LEFT JOIN documents ON documents.id = files.document_id
"""


@migrations()
def waiting_files(db: Database) -> None:
    """The view of the files' states, renewed."""
    db.execute("DROP VIEW file_status")
    db.execute(FILE_STATUS)
    reach("migrate.step")


# What the library's pages and charts ask for. Sums by the hour are kept as pages are read: a page read again counts
# again, and nothing ever has to read the rows of `pages`, which carry text, to add something up.
SERVING = """
CREATE INDEX files_added ON files(first_seen);
CREATE INDEX files_size ON files(size);
CREATE INDEX documents_finished ON documents(finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX documents_partly ON documents(id) WHERE pages_failed > 0;
CREATE INDEX page_jobs_code ON page_jobs(error_code) WHERE error_code IS NOT NULL;
CREATE INDEX pages_read_by ON pages(coalesce(engine, source), document_id);
CREATE TABLE reading_hours (
  hour INTEGER NOT NULL,              -- its start, seconds since 1970
  read_by TEXT NOT NULL,              -- the engine, or text-layer, or blank
  pages INTEGER NOT NULL,
  tokens INTEGER NOT NULL, target_passes INTEGER NOT NULL, drafted INTEGER NOT NULL, accepted INTEGER NOT NULL,
  PRIMARY KEY (hour, read_by)
) WITHOUT ROWID;
INSERT INTO reading_hours
  SELECT CAST(read_at / 3600 AS INTEGER) * 3600 AS hour, coalesce(engine, source) AS read_by, count(*),
    total(tokens), total(target_passes), total(drafted), total(accepted)
  FROM pages GROUP BY hour, read_by
"""
_COUNT_READING = """
CREATE TRIGGER {name} AFTER {event} ON pages BEGIN
  INSERT INTO reading_hours VALUES (CAST(new.read_at / 3600 AS INTEGER) * 3600, coalesce(new.engine, new.source), 1,
    coalesce(new.tokens, 0), coalesce(new.target_passes, 0), coalesce(new.drafted, 0), coalesce(new.accepted, 0))
  ON CONFLICT (hour, read_by) DO UPDATE SET pages = pages + 1, tokens = tokens + excluded.tokens,
    target_passes = target_passes + excluded.target_passes, drafted = drafted + excluded.drafted,
    accepted = accepted + excluded.accepted;
END
"""


@migrations()
def serving(db: Database) -> None:
    """Indexes for lists and filters, and what was read hour by hour."""
    for statement in SERVING.split(";\n"):
        db.execute(statement)
    db.execute(_COUNT_READING.format(name="pages_hours_ai", event="INSERT"))
    db.execute(_COUNT_READING.format(name="pages_hours_au", event="UPDATE OF read_at"))
    reach("migrate.step")


@migrations()
def folded_names(db: Database) -> None:
    """Names of files folded as text is, so that `uber` finds `über.pdf`."""
    db.conn.create_function("name_key", 1, name_key, deterministic=True)
    db.execute("UPDATE files SET name_key = name_key(path_bytes) WHERE name_key <> name_key(path_bytes)")
    reach("migrate.step")


# Pages that are gone stay in the full-text indexes until these are merged (storage.merging).
FORGOTTEN = """
CREATE TABLE forgotten (              -- one row
  pages INTEGER NOT NULL,             -- deleted or replaced since the indexes were last merged
  merging INTEGER NOT NULL DEFAULT 0  -- so many of them leave the indexes by the merge under way; 0: there is none
)
"""
_COUNT_FORGOTTEN = """
CREATE TRIGGER {name} AFTER {event} ON pages BEGIN
  UPDATE forgotten SET pages = pages + 1;
END
"""


@migrations()
def forgotten(db: Database) -> None:
    """Pages that are gone, counted.

    Nobody has counted so far: as many as there are, so that the indexes are merged once.
    """
    db.execute(FORGOTTEN)
    db.execute("INSERT INTO forgotten (pages) SELECT count(*) FROM pages")
    db.execute(_COUNT_FORGOTTEN.format(name="pages_forgotten_ad", event="DELETE"))
    db.execute(_COUNT_FORGOTTEN.format(name="pages_forgotten_au", event="UPDATE"))
    reach("migrate.step")


# What searches are filtered by. An entry of `pages_narrow` is a hundredth of a row of `pages`, which carries text:
# asking very many pages who read them, and of which document they are, reads a few megabytes.
FILTERING = """
CREATE INDEX documents_added ON documents(added_at);
CREATE INDEX pages_narrow ON pages(id, document_id, engine, source)
"""


@migrations()
def filtering(db: Database) -> None:
    """Indexes for filtered searches."""
    for statement in FILTERING.split(";\n"):
        db.execute(statement)
    reach("migrate.step")
