"""Tables and colour for a person on a terminal.

Owns the console and how common things look. Text from elsewhere arrives here escaped, and is never read as markup.
Invariant: a terminal that knows no colour, or no UTF-8, gets the same words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from relay.cli.streams import Streams
from relay.cli.text import printable


def show(streams: Streams, *renderables: RenderableType) -> None:
    """Write tables and coloured text."""
    with streams.written() as out:
        console = Console(file=out, highlight=False, markup=False, emoji=False)
        for renderable in renderables:
            console.print(renderable)


def words(text: object, style: str = "") -> Text:
    """Text as it is, escaped."""
    return Text(printable(str(text)), style=style)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table; a cell that is `Text` already keeps its style."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*[cell if isinstance(cell, Text) else words("" if cell is None else cell) for cell in row])
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair a line."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(words(name), value if isinstance(value, Text) else words("-" if value is None else value))
    return made
