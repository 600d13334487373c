"""Numbers and tables as people read them in Markdown."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell is escaped.

    >>> print(markdown_table(["context", "WER"], [["full", "0.30 %"]]))
    | context | WER |
    | --- | --- |
    | full | 0.30 % |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def show_rate(rate: float | None) -> str:
    """A rate in percent; an undefined one says so.

    >>> show_rate(2 / 11), show_rate(None)
    ('18.18 %', 'n/a')
    """
    return "n/a" if rate is None else f"{100 * rate:.2f} %"


def show_interval(interval: tuple[float, float]) -> str:
    """An interval of rates, in percent.

    >>> show_interval((0.021, 0.034))
    '2.10 to 3.40 %'
    """
    return f"{100 * interval[0]:.2f} to {show_rate(interval[1])}"
