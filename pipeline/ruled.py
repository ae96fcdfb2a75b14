"""Tables drawn with ruled lines: the grid the lines make, and what is written in its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.fragments import Fragment, Frame, clean_box, cut_line
from pipeline.tables import Cell, Table
from storage.records import Box

_MAX_LINES = 400  # more joined lines than this are a drawing


@dataclass(slots=True)
class _Span:
    """Touching collinear lines as one: at `at` (y of a horizontal one), from `start` to `end`."""

    at: float
    start: float
    end: float
    pieces: list[tuple[float, float]] = field(default_factory=list)

    def covers(self, start: float, end: float, slack: float) -> bool:
        """Whether a piece of the line runs along most of `start`…`end`."""
        middle = (start + end) / 2
        return any(low - slack <= middle <= high + slack for low, high in self.pieces)


@dataclass(frozen=True, slots=True)
class Grid:
    """A ruled grid with its cells: `owner[row][column]` is the number of the cell (merged ones share it)."""

    box: Box
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    owner: tuple[tuple[int, ...], ...]
    has_added_header: bool = False  # see `with_header`

    @property
    def is_regular(self) -> bool:
        """Whether most cells are single ones, as in a table; forms are drawn with boxes of any size."""
        places = (len(self.xs) - 1) * (len(self.ys) - 1)
        return len({cell for row in self.owner for cell in row}) >= 0.6 * places


def grids_of(rules: Sequence[Box], frame: Frame, em: float) -> list[Grid]:
    """The grids of at least two columns and two rows that ruled lines of a page draw, from top to bottom."""
    slack = max(1.5, 0.3 * em)
    across, down = _spans(rules, frame, slack)
    if len(across) < 2 or len(down) < 2 or len(across) + len(down) > _MAX_LINES:
        return []
    grids = []
    for hs, vs in _joined(across, down, slack):
        grid = _grid(hs, vs, slack)
        if grid is not None:
            grids.append(grid)
    return sorted(grids, key=lambda grid: (grid.box[1], grid.box[0]))


def _spans(rules: Sequence[Box], frame: Frame, slack: float) -> tuple[list[_Span], list[_Span]]:
    across, down = [], []
    for rule in rules:
        left, top, right, bottom = frame.place(clean_box(rule))
        width, height = right - left, bottom - top
        if height <= slack and width > 3 * height:
            across.append(((top + bottom) / 2, left, right))
        elif width <= slack and height > 3 * width:
            down.append(((left + right) / 2, top, bottom))
    return _collinear(across, slack / 2), _collinear(down, slack / 2)


def _collinear(lines: list[tuple[float, float, float]], slack: float) -> list[_Span]:
    spans: list[_Span] = []
    for at, start, end in sorted(lines):
        near = (s for s in reversed(spans[-12:]) if at - s.at <= slack)
        span = next((s for s in near if start <= s.end + slack and end >= s.start - slack), None)
        if span is None:
            spans.append(_Span(at, start, end, [(start, end)]))
        else:
            span.start, span.end = min(span.start, start), max(span.end, end)
            span.pieces.append((start, end))
    return spans


def _joined(across: list[_Span], down: list[_Span], slack: float) -> list[tuple[list[_Span], list[_Span]]]:
    """Lines that touch each other, directly or through others."""
    groups: list[tuple[list[_Span], list[_Span]]] = []
    left_across = list(across)
    left_down = list(down)
    while left_across:
        hs, vs = [left_across.pop()], []
        fresh = list(hs)
        while fresh:
            touching = [v for v in left_down if any(_cross(h, v, slack) for h in fresh)]
            left_down = [v for v in left_down if v not in touching]
            vs += touching
            fresh = [h for h in left_across if any(_cross(h, v, slack) for v in touching)]
            left_across = [h for h in left_across if h not in fresh]
            hs += fresh
        if len(hs) >= 2 and len(vs) >= 2:
            groups.append((hs, vs))
    return groups


def _cross(across: _Span, down: _Span, slack: float) -> bool:
    return (
        across.start - slack <= down.at <= across.end + slack
        and down.start - slack <= across.at <= down.end + slack
    )


def _grid(across: list[_Span], down: list[_Span], slack: float) -> Grid | None:
    left, right = min(h.start for h in across), max(h.end for h in across)
    top, bottom = min(v.start for v in down), max(v.end for v in down)
    xs = _edges([v.at for v in down], left, right, slack)
    ys = _edges([h.at for h in across], top, bottom, slack)
    if len(xs) < 3 or len(ys) < 3:
        return None
    owner = _owners(xs, ys, across, down, slack)
    return Grid((xs[0], ys[0], xs[-1], ys[-1]), tuple(xs), tuple(ys), owner)


def _edges(values: list[float], low: float, high: float, slack: float) -> list[float]:
    """`values` without near doubles; the ends are added where the crossing lines run on (open sides)."""
    edges: list[float] = []
    for value in sorted([*values, low, high]):
        if not edges or value - edges[-1] > 2 * slack:
            edges.append(value)
    return edges


def _owners(
    xs: Sequence[float], ys: Sequence[float], across: list[_Span], down: list[_Span], slack: float
) -> tuple[tuple[int, ...], ...]:
    width = len(xs) - 1
    parent = list(range(width * (len(ys) - 1)))

    def root(cell: int) -> int:
        while parent[cell] != cell:
            cell = parent[cell]
        return cell

    # The lines at every edge, so that a cell looks at a few of them only.
    at_x = [[line for line in down if abs(line.at - x) <= 2 * slack] for x in xs]
    at_y = [[line for line in across if abs(line.at - y) <= 2 * slack] for y in ys]
    for row in range(len(ys) - 1):
        for column in range(width):
            cell = row * width + column
            if column and not _is_drawn(at_x[column], ys[row], ys[row + 1], slack):
                parent[root(cell)] = root(cell - 1)
            if row and not _is_drawn(at_y[row], xs[column], xs[column + 1], slack):
                parent[root(cell)] = root(cell - width)
    return tuple(tuple(root(row * width + column) for column in range(width)) for row in range(len(ys) - 1))


def _is_drawn(lines: list[_Span], start: float, end: float, slack: float) -> bool:
    return any(line.covers(start, end, slack) for line in lines)


def with_header(grid: Grid, area: Box, em: float) -> Grid | None:
    """`grid` with `area` (a picture's box) as its first row, if it lies on top of it; else None.

    Tesseract takes a coloured header for a picture and finds no lines in it.
    """
    left, top, right, bottom = area
    beside = abs(left - grid.box[0]) > em or abs(right - grid.box[2]) > em
    if beside or abs(bottom - grid.box[1]) > 0.7 * em or bottom - top > grid.box[3] - grid.box[1]:
        return None
    fresh = 1 + max(cell for row in grid.owner for cell in row)
    first = tuple(range(fresh, fresh + len(grid.xs) - 1))
    box = (grid.box[0], top, grid.box[2], grid.box[3])
    return Grid(box, grid.xs, (top, *grid.ys), (first, *grid.owner), True)


def inside(grid: Grid, items: Sequence[Fragment]) -> list[Fragment]:
    """The fragments whose centres lie in the grid."""
    left, top, right, bottom = grid.box
    return [item for item in items if left <= (item.l + item.r) / 2 <= right and top <= item.mid <= bottom]


def cut_at_rules(grid: Grid, items: Sequence[Fragment], frame: Frame) -> list[Fragment]:
    """`items` of the grid, lines that run over a ruled border cut there."""
    out: list[Fragment] = []
    for item in items:
        out.extend(_cut(grid, item, frame) or (item,))
    return out


def _cut(grid: Grid, item: Fragment, frame: Frame) -> list[Fragment] | None:
    row = _interval(grid.ys, item.mid)
    if _interval(grid.xs, item.l) == _interval(grid.xs, item.r) or not item.line.words:
        return None
    boxes = [frame.place(clean_box(word.box)) for word in item.line.words]
    cells = [grid.owner[row][_interval(grid.xs, (box[0] + box[2]) / 2)] for box in boxes]
    cuts = [at for at in range(1, len(cells)) if cells[at] != cells[at - 1]]
    parts = cut_line(item.line, cuts) if cuts else None
    if parts is None:
        return None
    # Parts of a part: numbered so that they are never mistaken for a whole line again.
    return [
        Fragment(*frame.place(clean_box(part.box)), part, item.size, item.source, 1000 + at, 1)
        for at, part in enumerate(parts)
    ]


def _interval(edges: Sequence[float], value: float) -> int:
    at = 0
    while at < len(edges) - 2 and value >= edges[at + 1]:
        at += 1
    return at


def cells_of(grid: Grid, items: Sequence[Fragment]) -> dict[int, list[Fragment]]:
    """What is written in each cell, by its number, in reading order of the cells."""
    order = {cell: 0 for row in grid.owner for cell in row}
    cells: dict[int, list[Fragment]] = {cell: [] for cell in order}
    for item in items:
        row, column = _interval(grid.ys, item.mid), _interval(grid.xs, (item.l + item.r) / 2)
        if row == 0 and grid.has_added_header:
            for over in _columns_under(grid, item) or [column]:
                cells[grid.owner[row][over]].append(item)
        else:
            cells[grid.owner[row][column]].append(item)
    return {cell: found for cell, found in cells.items() if found}


def _columns_under(grid: Grid, item: Fragment) -> list[int]:
    """The columns that a header reaches well into."""
    reach = 0.4 * item.size
    return [
        at
        for at in range(len(grid.xs) - 1)
        if min(item.r, grid.xs[at + 1]) - max(item.l, grid.xs[at]) > reach
    ]


def ruled_table(grid: Grid, cells: dict[int, list[Fragment]]) -> Table | None:
    """The table in a grid, or None where too little is written in it for one."""
    # What is written in a merged cell stands at its first place only.
    firsts: set[int] = set()
    rows: list[list[Cell]] = []
    for owners in grid.owner:
        row: list[Cell] = []
        for cell in owners:
            row.append(() if cell in firsts else tuple(cells.get(cell, ())))
            firsts.add(cell)
        rows.append(row)
    rows = _flat_header(grid, rows, cells)
    used_rows = [row for row in rows if any(row)]
    used = [column for column in range(len(grid.xs) - 1) if any(row[column] for row in used_rows)]
    if len(used_rows) < 2 or len(used) < 2:
        return None
    return Table(tuple(tuple(row[column] for column in used) for row in used_rows))


def _flat_header(grid: Grid, rows: list[list[Cell]], cells: dict[int, list[Fragment]]) -> list[list[Cell]]:
    """A header of two rows, held together by cells over both, as one: "Results" over "Accuracy" in both columns."""
    if len(rows) < 3 or not set(grid.owner[0]) & set(grid.owner[1]):
        return rows
    header = []
    for upper, lower in zip(grid.owner[0], grid.owner[1], strict=True):
        both = (upper,) if upper == lower else (upper, lower)
        header.append(tuple(item for cell in both for item in cells.get(cell, ())))
    return [header, *rows[2:]]
