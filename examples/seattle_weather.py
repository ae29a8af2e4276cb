"""The Python tasks of seattle_weather.yaml: each takes JSON values and returns one, its output, for later tasks."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def extract(year: int, directory: str) -> dict[str, Any]:
    """The days of ``year``, written to a file of their own."""
    source = _data_set("seattle-weather.csv")
    with source.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    days = [row for row in rows if row["date"].startswith(f"{year}/")]
    if not days:
        raise ValueError(
            f"{source.name} has no day of {year}; it covers {rows[0]['date'][:4]} to {rows[-1]['date'][:4]}"
        )
    target = Path(directory).resolve() / f"days-{year}.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(days[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(days)
    print(f"{len(days)} of {len(rows)} days go to {target}")
    return {"file": str(target), "days": len(days)}


def temperature(days: str) -> list[dict[str, float]]:
    """Mean high and low of each month."""
    months = _by_month(days)
    return [{"high": _mean(rows, "temp_max"), "low": _mean(rows, "temp_min")} for rows in months]


def rain(days: str) -> list[float]:
    """Millimetres of each month."""
    return [round(sum(float(row["precipitation"]) for row in rows), 1) for rows in _by_month(days)]


def summary(
    year: int, station: str, temperature: Sequence[Mapping[str, float]], rain: Sequence[float], kinds: Mapping[str, int]
) -> dict[str, Any]:
    """What the branches and the report need."""
    wettest = max(range(12), key=lambda month: rain[month])
    hottest = max(range(12), key=lambda month: temperature[month]["high"])
    print(f"{sum(rain):.0f} mm of rain, most of it in {MONTHS[wettest]}; {MONTHS[hottest]} was the hottest month")
    return {
        "year": year,
        "station": station,
        "rain_mm": round(sum(rain), 1),
        "wettest": MONTHS[wettest],
        "hottest": MONTHS[hottest],
        "rain": list(rain),
        "temperature": list(temperature),
        "kinds": dict(kinds),
    }


def advice(text: str) -> str:
    """What to do about such a year."""
    print(text)
    return text


def report(
    summary: Mapping[str, Any], directory: str, wet: str | None = None, dry: str | None = None
) -> dict[str, str]:
    """A Markdown report with a picture beside it."""
    folder = Path(directory).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"weather-{summary['year']}.svg"
    picture.write_text(_picture(summary["rain"], summary["temperature"]), encoding="utf-8")
    kinds = ", ".join(f"{days} of {kind}" for kind, days in summary["kinds"].items())
    lines = [
        f"# Seattle's weather in {summary['year']}",
        "",
        f"{summary['station']}: {summary['rain_mm']} mm of rain, most of it in {summary['wettest']}; "
        f"the hottest month was {summary['hottest']}. Days: {kinds}.",
        "",
        f"**{wet or dry}**",
        "",
        f"![rain and temperature by month]({picture.name})",
        "",
        "| month | mean high °C | mean low °C | rain mm |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {degrees['high']:.1f} | {degrees['low']:.1f} | {mm:.1f} |"
            for name, degrees, mm in zip(MONTHS, summary["temperature"], summary["rain"], strict=True)
        ),
    ]
    target = folder / f"weather-{summary['year']}.md"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"the report is {target}")
    return {"report": str(target), "picture": str(picture)}


def _data_set(name: str) -> Path:
    """A file of the package vega_datasets, found without importing it (that would import pandas)."""
    spec = importlib.util.find_spec("vega_datasets")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"the package vega_datasets is not installed: {sys.executable} -m pip install vega_datasets"
        )
    return Path(spec.origin).parent / "_data" / name


def _by_month(days: str) -> list[list[dict[str, str]]]:
    months: dict[int, list[dict[str, str]]] = defaultdict(list)
    with Path(days).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            months[int(row["date"][5:7])].append(row)
    return [months[month] for month in range(1, 13)]


def _mean(rows: Sequence[Mapping[str, str]], column: str) -> float:
    return round(sum(float(row[column]) for row in rows) / len(rows), 1)


def _picture(rain: Sequence[float], temperature: Sequence[Mapping[str, float]]) -> str:
    """Rain as bars, the mean highs as a line."""
    tallest = max(rain) or 1.0
    warmest = max(degrees["high"] for degrees in temperature) or 1.0
    bars = "".join(
        f'<rect x="{40 + 50 * month}" y="{240 - 200 * mm / tallest:.0f}" width="34" height="{200 * mm / tallest:.0f}"'
        f' fill="#4a90d9"><title>{MONTHS[month]}: {mm} mm</title></rect>'
        f'<text x="{57 + 50 * month}" y="258" text-anchor="middle">{MONTHS[month]}</text>'
        for month, mm in enumerate(rain)
    )
    line = " ".join(
        f"{57 + 50 * month},{240 - 200 * degrees['high'] / warmest:.0f}" for month, degrees in enumerate(temperature)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 270" font-family="sans-serif" font-size="12">'
        f'<rect width="660" height="270" fill="white"/>{bars}'
        f'<polyline points="{line}" fill="none" stroke="#d9534a" stroke-width="3"/>'
        f'<text x="40" y="20">rain (most: {tallest} mm) and mean high (warmest: {warmest} °C)</text></svg>\n'
    )
