"""What stands on a page as a whole among its text: ruled tables, forms of ruled boxes, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.fragments import Fragment, Frame, clean_box
from pipeline.ruled import Grid, cells_of, cut_at_rules, grids_of, inside, ruled_table, with_header
from pipeline.tables import Table, is_filled
from storage.records import Box, Line, PageText


@dataclass(frozen=True, slots=True)
class Placed:
    """An object and the fragment without text that holds its place while the page is cut into zones."""

    place: Fragment
    box: Box  # on the page
    table: Table | None = None
    cells: tuple[tuple[Fragment, ...], ...] = ()  # of a form, in reading order
    # With neither it is a picture.


def find_objects(
    page: PageText, frame: Frame, items: Sequence[Fragment], em: float
) -> tuple[list[Placed], list[Fragment]]:
    """The objects of a page, and the fragments that belong to none of them."""
    rest = list(items)
    found: list[Placed] = []
    pictures = [clean_box(picture) for picture in page.pictures]
    for ruled in grids_of(page.rules, frame, em):
        headed = [(with_header(ruled, frame.place(box), em), box) for box in pictures]
        grid, header = next(((grid, box) for grid, box in headed if grid), (ruled, None))
        mine = inside(grid, rest)
        placed = _of_grid(grid, mine, frame, len(found), em) if mine else None
        if placed is not None:
            gone = set(mine)
            rest = [item for item in rest if item not in gone]
            found.append(placed)
            pictures = [box for box in pictures if box is not header]
    for box in pictures:
        spot = frame.place(box)
        if _is_figure(spot, frame, rest, em):
            found.append(Placed(_place(spot, len(found), em), box))
    return found, rest


def _place(spot: Box, number: int, em: float) -> Fragment:
    return Fragment(*spot, Line("", spot), em, -1, number)


def _of_grid(grid: Grid, mine: list[Fragment], frame: Frame, number: int, em: float) -> Placed | None:
    items = cut_at_rules(grid, mine, frame)
    cells = cells_of(grid, items)
    place = _place(grid.box, number, em)
    table = ruled_table(grid, cells) if grid.is_regular else None
    if table is not None and is_filled(table):
        return Placed(place, grid.box, table=table)
    if len(cells) < 2:
        return None  # a frame around text
    return Placed(place, grid.box, cells=tuple(tuple(cell) for cell in cells.values()))


def _is_figure(spot: Box, frame: Frame, items: Sequence[Fragment], em: float) -> bool:
    """Whether a picture is one among the text; not a scan of the page, a background, a dot."""
    left, top, right, bottom = spot
    if min(right - left, bottom - top) < 2 * em:
        return False
    if (right - left) * (bottom - top) > 0.7 * abs(frame.width * frame.height):
        return False
    return not any(left < (item.l + item.r) / 2 < right and top < item.mid < bottom for item in items)
