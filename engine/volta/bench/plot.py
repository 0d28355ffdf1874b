"""A picture of a result: how long each side takes in each case, as a share of the longest."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from volta.bench.report import Report, counted, duration, write_bytes
from volta.errors import UsageError

FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raises UsageError where no picture could be drawn into this file."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"[bench] --plot is {path}: expected a name that ends in {', '.join(FORMATS)}")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise UsageError(
            f"[bench] --plot needs matplotlib, not installed ({error}): pip install 'volta-runtime[plot]'"
        ) from None
    mpl.use("Agg")


def draw(report: Report, path: Path) -> None:
    """Writes a bar for each side of each case, with its spread, and a mark at the roofline's limit."""
    check(path)
    from matplotlib import pyplot

    names = list(dict.fromkeys(side for one in report.measurements for side in one.sides))
    height = 0.8 / max(1, len(names))
    tall = 1.4 + 0.34 * len(report.measurements) * max(2, len(names))
    figure, axes = pyplot.subplots(figsize=(9, tall), layout="constrained")
    labelled: set[str] = set()
    for row, one in enumerate(report.measurements):
        longest = max(timing.median for timing in one.sides.values())
        for place, name in enumerate(names):
            if name not in one.sides:
                continue
            timing = one.sides[name]
            middle = row + (place - (len(names) - 1) / 2) * height
            spread = [[timing.median - timing.low], [timing.high - timing.median]]
            axes.barh(
                middle,
                timing.median / longest,
                height * 0.9,
                xerr=[[side[0] / longest] for side in spread],
                color=f"C{place}",
                error_kw={"lw": 0.8},
                label=name if name not in labelled else None,
            )
            labelled.add(name)
            axes.text(0.005, middle, duration(timing.median), va="center", fontsize=7)
        if one.limit:
            axes.plot([one.limit / longest] * 2, [row - 0.42, row + 0.42], color="black", lw=1.2)
    labels = [f"{one.name}, {counted(one.threads, 'thread')}" for one in report.measurements]
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.set_xlabel("time, as a share of the slowest side (bars: spread; black: the measured roofline)")
    axes.set_title(f"{report.suite}: {report.machine['cpu']}", fontsize=10)
    handles, found = axes.get_legend_handles_labels()
    if found:
        figure.legend(handles, found, fontsize=8, ncols=len(found), loc="outside lower right")
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower(), dpi=130)
    pyplot.close(figure)
    write_bytes(path, picture.getvalue())
