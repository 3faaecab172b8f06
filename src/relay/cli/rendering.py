"""Tables and colour for a person on a terminal.

Owns the console and how common things look. Text from elsewhere arrives here escaped, and is never read as markup.
Invariants: a terminal that knows no colour, or no UTF-8, gets the same words; no id, url, name or time is broken to
make it fit, since it is there to be copied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from relay.cli.streams import Streams
from relay.cli.text import printable

NOTHING = "-"
"""What stands where there is nothing."""

_GAP = 2
"""Between the columns of a table."""


def show(streams: Streams, *renderables: RenderableType) -> None:
    """Write tables and coloured text. A line that is longer than the terminal is left for it to continue."""
    with streams.written() as out:
        console = Console(file=out, highlight=False, markup=False, emoji=False)
        for renderable in renderables:
            if isinstance(renderable, Text):
                console.print(renderable, soft_wrap=True)
            else:
                console.print(renderable, crop=False)


def words(text: object, style: str = "") -> Text:
    """Text as it is, escaped."""
    return Text(printable(str(text)), style=style)


@dataclass(frozen=True)
class Rows:
    """A table, or one block per row on a terminal too narrow for it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Text]]
    prose: Collection[str]
    otherwise: RenderableType | None

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """What of the two fits."""
        if self._least_width() <= options.max_width:
            yield self._table()
        elif self.otherwise is not None:
            yield self.otherwise
        else:
            for row in self.rows:
                yield Facts([(name, cell) for name, cell in zip(self.columns, row, strict=True) if cell.plain])
                yield Text("")

    def _least_width(self) -> int:
        """The width below which something would be broken that must not be."""
        widths = []
        for number, column in enumerate(self.columns):
            cells = [Text(column), *(row[number] for row in self.rows)]
            if column in self.prose:
                cells = [Text(word) for cell in cells for word in cell.plain.split()]
            widths.append(max((cell.cell_len for cell in cells), default=0))
        return sum(widths) + _GAP * (len(widths) - 1)

    def _table(self) -> Table:
        padding = (0, _GAP - 1, 0, 0)  # the box puts one space more between columns
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding, header_style="bold")
        for column in self.columns:
            made.add_column(column, no_wrap=column not in self.prose)
        for row in self.rows:
            made.add_row(*(cell if cell.plain else _cell(None) for cell in row))
        return made


@dataclass(frozen=True)
class Facts:
    """Names and values, one pair a line; a value that does not fit behind its name has the next line to itself."""

    pairs: Sequence[tuple[str, Text]]

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, none of them wrapped here."""
        width = max((Text(name).cell_len for name, _ in self.pairs), default=0)
        for name, value in self.pairs:
            label = words(name.ljust(width), "dim")
            if width + _GAP + value.cell_len <= options.max_width:
                yield _unbroken(Text.assemble(label, " " * _GAP, value))
            else:
                yield _unbroken(words(name, "dim"))
                yield _unbroken(Text.assemble(" " * _GAP, value))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    prose: Collection[str] = (),
    optional: Collection[str] = (),
    otherwise: RenderableType | None = None,
) -> Rows:
    """A table; a cell that is `Text` already keeps its style.

    Columns of `prose` may be wrapped between words. One of `optional` that is empty in every row is left out. A
    terminal too narrow for the table gets `otherwise`, or one block per row.
    """
    cells = [[_cell("" if value is None else value) for value in row] for row in rows]
    kept = [
        number
        for number, column in enumerate(columns)
        if column not in optional or any(row[number].plain for row in cells)
    ]
    return Rows(
        [columns[number] for number in kept],
        [[row[number] for number in kept] for row in cells],
        prose,
        otherwise,
    )


def facts(pairs: Iterable[tuple[str, object]]) -> Facts:
    """Names and values, one pair a line."""
    return Facts([(printable(name), _cell(None if value == "" else value)) for name, value in pairs])


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else words(NOTHING if value is None else value)


def _unbroken(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "ignore"
    return line
