"""What the library API takes and gives: one model per thing, from which the OpenAPI document is made."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from storage.index import HitState
from storage.records import Category

Seconds = Annotated[float, Field(description="Seconds since 1970, UTC.")]
Points = Annotated[
    tuple[float, float, float, float],
    Field(description="Left, top, right, bottom in points (1/72 inch) from the page's top left corner."),
]


class DocumentState(StrEnum):
    """What a person calls the state of a file."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    NEEDS_PASSWORD = "needs_password"
    MISSING = "missing"


class PageState(StrEnum):
    """How far a page is."""

    PENDING = "pending"
    READING = "reading"
    DONE = "done"
    BLANK = "blank"
    FAILED = "failed"


class Shape(BaseModel):
    """Base of all: values as they are, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(Shape):
    """Why something could not be read, and what to do."""

    code: str
    message: str
    remedy: str | None = None


class Note(Shape):
    """Something worth knowing about a file (page null) or one of its pages."""

    code: str
    message: str
    page: int | None = None


class Problem(Shape):
    """How every failed request is answered."""

    class Told(Shape):
        """What went wrong; OpenAI's fields and a remedy."""

        message: str
        type: str
        param: str | None
        code: str | None
        remedy: str | None

    error: Told


# --- documents ---------------------------------------------------------------------------------------------


FileId = Annotated[int, Field(description="The file: the number in this API's addresses.")]
ContentId = Annotated[
    int | None,
    Field(description="The content: the number in MCP's references. Null until the file was opened."),
]


class Document(Shape):
    """A file of the library. Files with the same content share what was read (`content_id`)."""

    id: FileId
    content_id: ContentId
    path: str
    name: str
    folder: str
    state: DocumentState
    title: str | None
    media_type: str | None
    size: int = Field(description="Bytes.")
    pages: int | None = Field(description="Null until the file was opened.")
    pages_done: int
    pages_blank: int
    pages_failed: int
    added_at: Seconds
    finished_at: Seconds | None
    error: Failure | None


class DocumentDetail(Document):
    """A file with all that is known of it but its pages."""

    other_paths: list[str] = Field(description="Other files with the same content; at most 100.")
    warnings: list[Note] = Field(description="At most 200.")
    attachments: list[str]
    options: dict[str, str | int] = Field(description="What the last retry asked for.")
    attempts: int
    note: str | None = Field(description="What is unusual about its sidecars.")
    sidecars: list[str] = Field(description="Addresses of those that can be downloaded: Markdown, JSON.")
    first_page: str | None = Field(description="Address of page 1; null until the file was opened.")
    current_page: int | None = Field(description="The page being read now.")


class DocumentList(Shape):
    """Some documents, and where the next ones begin."""

    documents: list[Document]
    next: str | None = Field(description="`cursor` of the next request; null: that was all.")


class Sort(StrEnum):
    """What documents are sorted by."""

    ADDED = "added"
    FINISHED = "finished"
    NAME = "name"
    PATH = "path"
    SIZE = "size"


class SidecarKind(StrEnum):
    """Which of a document's sidecars."""

    MARKDOWN = "markdown"
    JSON = "json"


class Uploaded(Shape):
    """What became of an upload."""

    document: Document
    known: bool = Field(description="The same content was there already; nothing was stored.")


class PageItem(Shape):
    """A page in a document's list of pages."""

    number: int
    label: str | None
    state: PageState
    page_id: int | None = Field(description="Null until the page was read.")
    error: Failure | None


class PageList(Shape):
    """Some pages of a document."""

    document_id: int
    pages: list[PageItem]
    next: int | None = Field(description="`after` of the next request; null: that was all.")


class Queued(Shape):
    """How many documents will be read again."""

    documents: int


class RetryWish(Shape):
    """What to do otherwise this time; nothing given: try what failed again."""

    engine: str | None = None
    dpi: Annotated[int | None, Field(ge=36, le=1200)] = None
    text_layer: str | None = Field(default=None, description="auto, ignore or require.")
    password: Annotated[str | None, Field(max_length=1000)] = None


# --- pages -------------------------------------------------------------------------------------------------


class Word(Shape):
    """A word and where it stands."""

    text: str
    box: Points
    confidence: float | None


class Line(Shape):
    """A printed line."""

    text: str
    box: Points
    words: list[Word]


class Block(Shape):
    """A unit of a page, in reading order."""

    position: int
    category: Category
    box: Points
    text: str
    markdown: str
    level: int | None
    confidence: float | None
    lines: list[Line] | None = Field(description="Only with `words=true`.")


class Match(Shape):
    """Where words searched for stand: boxes of the words, or of the block where words have none."""

    block: int = Field(description="Position of the block.")
    boxes: list[Points]


class Attempt(Shape):
    """A way in which the page was tried."""

    rung: str
    stop_reason: str
    tokens: int
    seconds: float


class Provenance(Shape):
    """Who read the page, and how it went."""

    source: str = Field(description="text-layer, engine or blank.")
    engine: str | None
    model: str | None
    revision: str | None
    prompt: str | None
    layer: str = Field(description="What the text layer was worth: absent, good, bad, ignored.")
    layer_reason: str
    stop_reason: str
    confidence: float | None = Field(description="0 to 1.")
    dpi: float | None
    width_px: int | None
    height_px: int | None
    tokens: int | None
    target_passes: int | None
    drafted: int | None
    accepted: int | None
    seconds: dict[str, float]
    attempts: list[Attempt]
    read_at: Seconds | None


class PageLink(Shape):
    """Another page of the document."""

    number: int
    page_id: int | None
    url: str


class Page(Shape):
    """A page: as read, or why not."""

    page_id: int | None = Field(description="Null until the page was read.")
    url: str
    document: Document
    number: int
    label: str | None
    state: PageState
    error: Failure | None
    width_pt: float | None
    height_pt: float | None
    image: str = Field(description="Address of its picture; `?width=` in pixels.")
    text: str
    markdown: str
    blocks: list[Block]
    matches: list[Match] = Field(description="Of `q`.")
    provenance: Provenance | None
    warnings: list[Note]
    previous: PageLink | None
    next: PageLink | None


# --- search ------------------------------------------------------------------------------------------------


class Piece(Shape):
    """A run of a snippet."""

    text: str
    match: bool


class Hit(Shape):
    """A page that matches; or a file (number null), where only a name was searched for."""

    document_id: FileId
    content_id: ContentId
    page_id: int | None
    number: int | None
    label: str | None
    path: str
    name: str
    paths: list[str]
    state: HitState
    score: float
    snippet: list[Piece]
    boxes: list[Points] = Field(description="Of the matching blocks.")


class SearchAnswer(Shape):
    """Hits, best first."""

    query: str
    note: str = Field(description="What to know about the query; mostly empty.")
    hits: list[Hit]
    next: int | None = Field(description="`offset` of the next request; null: that was all.")


class Folder(Shape):
    """A folder with documents in or below it."""

    path: str
    name: str
    is_root: bool = Field(description="Whether it is a watched folder.")


class FolderList(Shape):
    """The folders directly below one; those at the top without one."""

    below: str | None
    folders: list[Folder]
    more: bool = Field(description="There are more than are shown.")


class Facets(Shape):
    """What can be filtered by."""

    engines: list[str] = Field(
        description="Values of the filter `engine`, `text-layer` and `blank` included."
    )
    states: list[DocumentState]
    roots: list[str]
    oldest: Seconds | None = Field(description="When the first document was added.")


# --- status ------------------------------------------------------------------------------------------------


class Root(Shape):
    """A watched folder."""

    path: str
    recursive: bool
    watched: bool
    mode: str
    state: str
    message: str | None
    scanned_at: Seconds | None


class Counts(Shape):
    """Files by state, each path once; pages, each content once."""

    total: int
    queued: int
    running: int
    done: int
    failed: int
    needs_password: int
    missing: int
    waiting: int
    skipped: int
    pages_total: int
    pages_done: int
    pages_failed: int
    pages_blank: int


class WorkerItem(Shape):
    """A worker process."""

    pid: int
    path: str | None
    page: int | None
    stage: str | None
    rss_mb: float | None


class PauseItem(Shape):
    """Why nothing is being handed out."""

    kind: str
    reason: str
    path: str | None
    since: Seconds | None


class Reading(Shape):
    """What a worker is reading now."""

    document_id: int | None
    path: str
    name: str
    page: int | None
    pages: int | None
    pages_done: int
    stage: str | None
    since: Seconds | None
    pid: int


class Status(Shape):
    """What `ocrd status --json` prints, but for its documents; what is being read now, and the last failures."""

    now: Seconds
    state: str = Field(description="running, idle, paused or stopped.")
    watcher: str
    roots: list[Root]
    counts: Counts
    rate_pages_per_min: float
    eta_s: float | None
    rss_mb: float
    peak_rss_mb: float
    workers: list[WorkerItem]
    engine: str | None
    pause: list[PauseItem]
    pause_reason: str | None
    reading: list[Reading]


class FailureList(Shape):
    """Documents that failed wholly or in part, the latest first."""

    documents: list[Document]


class Hour(Shape):
    """What was read in an hour."""

    start: Seconds
    pages: int
    tokens: int = Field(description="Written by models.")
    target_passes: int
    drafted: int
    accepted: int
    tokens_per_pass: float | None = Field(description="Null where no model read.")


class Hours(Shape):
    """Hour by hour, the oldest first, without gaps."""

    hours: list[Hour]


class Changed(Shape):
    """An event `documents`: documents that are new, or whose state or pages changed."""

    documents: list[Document]
    more: bool = Field(description="More changed than are shown: ask again for what is on the screen.")
