"""Folders as data: how fast they are looked through, and whether the file that is meant is found.

``python benchmarks/folders.py`` makes the folders, and writes ``results/folders.json``:

- from the command to the first request, for 1,754 files, with bytes that were copied and the length
  of the list that the model is shown;
- the same again, when the index is kept;
- the time and the host's memory for 100,000 files;
- of 30 notebooks, exported with what they read, how many run again where the folder is not;
- of 40 questions about 300 files of 25 layouts, for how many the needed files are among the first
  five that ``find_data`` gives. Half of the questions were written and never tried while the
  search was made.
"""

# ruff: noqa: E501 - what stands in the tables
from __future__ import annotations

import asyncio
import itertools
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernel_agent import ScriptedModel, Session
from kernel_agent.notebook import copy_read, export
from kernel_agent.records import Message, read_trace
from kernel_agent.session.verification import verify_notebook

RESULTS = Path(__file__).with_name("results") / "folders.json"
COUNT = itertools.count()
CITIES = ("Boston", "Chicago", "Denver", "Miami", "Phoenix", "Seattle")
STATES = ("Alabama", "Alaska", "Colorado", "Florida", "Ohio", "Texas")
YEARS = (2019, 2020, 2021, 2022)


class Lake:
    """Writes a folder of tables as they lie about: codes for names, title lines, many layouts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._dice = random.Random(7)

    def table(self, name: str, columns: str, *rows: str, title: str = "", sep: str = ",") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        names = columns.split(",")
        lines = [*([title, ""] if title else []), sep.join(names)]
        for number in range(40):
            row = rows[number % len(rows)].split(",") if rows else []
            filled = [*row, *(str(self._dice.randint(1, 999)) for _ in names[len(row) :])]
            lines.append(sep.join(filled))
        path.write_text("\n".join(lines) + "\n")

    def fill(self) -> None:
        """Write 300 files of 25 layouts."""
        for city in CITIES:
            for year in (2021, 2022):
                self.table(
                    f"noaa/GHCN_{city[:3].upper()}_{year}.csv",
                    "STATION,NAME,DATE,PRCP,TMAX,TMIN",
                    f"USW001,{city} Airport,{year}-01-01",
                )
                self.table(
                    f"city_data/{city.lower()}/crime_{year}.csv",
                    "incident_id,offense,district,reported_at",
                    "1,burglary,north",
                    "2,theft,south",
                )
                self.table(
                    f"city_data/{city.lower()}/restaurant_inspections_{year}.csv",
                    "restaurant,score,violations,inspector",
                    "Luigi's,90",
                    "Chez Paul,80",
                )
                self.table(
                    f"transit/{city}/ridership-{year}.csv",
                    "route,weekday_boardings,weekend_boardings",
                    "Red Line",
                    "Bus 66",
                )
                self.table(
                    f"air/{city.lower()}_aqi_{year}.csv", "date,pm25,ozone,no2", f"{year}-01-01"
                )
                self.table(
                    f"bikes/{year}/trips_{city.lower()}.csv",
                    "ride_id,start_station,end_station,minutes",
                    "a1,Main St,River St",
                )
        for state in STATES:
            for year in (2019, 2021):
                self.table(
                    f"identity_theft/State MSA Fraud and ID Theft/{state}_{year}.csv",
                    "Metropolitan Area,Reports",
                    "Springfield",
                    title=f"{state} fraud reports",
                )
                self.table(
                    f"health/{state.lower()}_hospital_beds_{year}.csv",
                    "hospital,beds,icu_beds,county",
                    "General Hospital",
                )
                self.table(
                    f"schools/{year}/{state}_enrollment.csv",
                    "school_name,grade,pupils,teachers",
                    "Lincoln High,9",
                )
                self.table(
                    f"energy/eia_{state[:2].lower()}_{year}.csv",
                    "plant,fuel,mwh_generated,co2_tons",
                    "Plant A,coal",
                    "Plant B,wind",
                )
                self.table(
                    f"elections/{year}/{state.lower()}_results.tsv",
                    "county,candidate,votes",
                    "Adams,Smith",
                    sep="\t",
                )
        for year in YEARS:
            for half in ("h1", "h2", "final"):
                self.table(
                    f"hr/staff_{year}_{half}.csv",
                    "employee_no,department,salary,hired_on",
                    "1,Sales",
                )
                self.table(f"shop/orders_{year}_{half}.csv", "order_id,customer,sku,quantity,total")
                self.table(
                    f"finance/gl_{year}_{half}.csv", "account,cost_center,debit,credit", "4711,100"
                )
                self.table(
                    f"sensors/tbl_{year}{half}.csv",
                    "ts,device,vibration_rms,bearing_temp",
                    f"{year}-03-01,pump-3",
                    title="Predictive maintenance",
                )
                self.table(
                    f"housing/listings_{year}_{half}.csv",
                    "address,asking_price,bedrooms,sqft",
                    "1 Elm St",
                )
                self.table(
                    f"rivers/gauge_{year}_{half}.csv",
                    "gauge,discharge_m3s,stage_cm",
                    "Rhine Cologne",
                )
                self.table(
                    f"football/season{year}_{half}.csv",
                    "home,away,home_goals,away_goals",
                    "Ajax,PSV",
                )
                self.table(
                    f"quakes/usgs_{year}_{half}.csv", "time,latitude,longitude,magnitude,place"
                )
                self.table(
                    f"library/loans_{year}_{half}.csv",
                    "isbn,title,borrower_age,days_out",
                    "978,Emma",
                )
                self.table(f"ships/ais_{year}_{half}.csv", "mmsi,vessel_name,port_of_call,draught")
                self.table(
                    f"patents/grants_{year}_{half}.csv",
                    "patent_no,assignee,cpc_class,granted",
                    "US1,Acme",
                )
                self.table(
                    f"clinical/trial_{year}_{half}.csv",
                    "subject,arm,dose_mg,adverse_event",
                    "1,placebo",
                )
                self.table(
                    f"misc/export_{year}_{half}.csv",
                    "wine,points,price_per_bottle,winery",
                    "Riesling",
                )
        for name in ("census/population_by_state.csv", "census/median_income.csv"):
            column = "population" if "population" in name else "household_income"
            self.table(name, f"state,{column}", *STATES)
        for number in range(10):
            self.table(f"misc/untitled ({number}).csv", "a,b,c", title="Draft, do not use")
        self.table("lookups/country_codes.csv", "iso2,country", "CH,Switzerland")
        self.table("lookups/exchange_rates.csv", "month,currency,usd_per_unit", "2021-01,EUR")


TRIED = {
    "How much precipitation did Boston have in 2021?": ["noaa/GHCN_BOS_2021.csv"],
    "burglaries in Chicago 2022 by district": ["city_data/chicago/crime_2022.csv"],
    "Which restaurants in Miami failed their inspection in 2021?": [
        "city_data/miami/restaurant_inspections_2021.csv"
    ],
    "weekday boardings of the Red Line in Boston 2022": ["transit/Boston/ridership-2022.csv"],
    "ozone in Phoenix in 2021": ["air/phoenix_aqi_2021.csv"],
    "average minutes of a bike trip in Seattle 2022": ["bikes/2022/trips_seattle.csv"],
    "identity theft reports per metropolitan area in Ohio 2019": [
        "identity_theft/State MSA Fraud and ID Theft/Ohio_2019.csv"
    ],
    "ICU beds in Texas hospitals in 2021": ["health/texas_hospital_beds_2021.csv"],
    "pupils per teacher in Colorado schools 2019": ["schools/2019/Colorado_enrollment.csv"],
    "who won the election in Florida 2021?": ["elections/2021/florida_results.tsv"],
    "mean salary by department at the end of 2022": ["hr/staff_2022_final.csv"],
    "vibration of pump-3 in the first half of 2020": ["sensors/tbl_2020h1.csv"],
    "asking price per square foot, final listings 2021": ["housing/listings_2021_final.csv"],
    "discharge of the Rhine in the second half of 2019": ["rivers/gauge_2019_h2.csv"],
    "home goals per match in season 2020 final": ["football/season2020_final.csv"],
    "strongest earthquake magnitude in 2022 h1": ["quakes/usgs_2022_h1.csv"],
    "population of Alaska": ["census/population_by_state.csv"],
    "adverse events on placebo in the trial of 2021 h2": ["clinical/trial_2021_h2.csv"],
    "best wine for its price per bottle in 2019 h1": ["misc/export_2019_h1.csv"],
    "Compare crime in Denver in 2021 with 2022": [
        "city_data/denver/crime_2021.csv",
        "city_data/denver/crime_2022.csv",
    ],
}
UNSEEN = {
    "What was the highest temperature in Seattle in 2022?": ["noaa/GHCN_SEA_2022.csv"],
    "Number of thefts reported in Phoenix during 2021": ["city_data/phoenix/crime_2021.csv"],
    "mean inspection score of Denver restaurants 2022": [
        "city_data/denver/restaurant_inspections_2022.csv"],
    "How many people took the bus on weekends in Chicago in 2021?": [
        "transit/Chicago/ridership-2021.csv"],
    "PM2.5 levels, Miami, 2022": ["air/miami_aqi_2022.csv"],
    "most popular start station for bikes in Boston 2021": ["bikes/2021/trips_boston.csv"],
    "fraud in Alabama's metropolitan areas 2021": [
        "identity_theft/State MSA Fraud and ID Theft/Alabama_2021.csv"],
    "which county in Florida has most hospital beds (2019)": ["health/florida_hospital_beds_2019.csv"],
    "enrollment of grade 9 in Texas 2021": ["schools/2021/Texas_enrollment.csv"],
    "CO2 from coal plants in Ohio 2021": ["energy/eia_oh_2021.csv"],
    "votes per candidate, Alaska 2019": ["elections/2019/alaska_results.tsv"],
    "how many people were hired by the sales department, first half of 2019": ["hr/staff_2019_h1.csv"],
    "top customers by order total, 2021 h2": ["shop/orders_2021_h2.csv"],
    "debits per cost center in 2020 h1": ["finance/gl_2020_h1.csv"],
    "bearing temperature alarms 2022 final": ["sensors/tbl_2022final.csv"],
    "average age of library borrowers in 2021 h1": ["library/loans_2021_h1.csv"],
    "vessels with the deepest draught 2020 h2": ["ships/ais_2020_h2.csv"],
    "patents granted to Acme in 2022 h1": ["patents/grants_2022_h1.csv"],
    "median household income by state": ["census/median_income.csv"],
    "convert salaries of staff 2020 final to euros at the exchange rate": [
        "hr/staff_2020_final.csv", "lookups/exchange_rates.csv"],
}  # fmt: skip


async def found_first(folder: Path, questions: dict[str, list[str]]) -> list[str]:
    """Return the questions for which a needed file is not among the first five."""
    missed = []
    async with Session(
        model=ScriptedModel([]), data=folder, out=folder.with_name(f"out-{next(COUNT)}")
    ) as session:
        for question, needed in questions.items():
            lines = session.list_data(question, most=5)
            paths = [line.partition(" (")[0].removeprefix(f"data/{folder.name}/") for line in lines]
            if not set(needed) <= set(paths):
                missed.append(question)
    return missed


class First(ScriptedModel):
    """Notes when it is first asked, and what it is shown."""

    at = 0.0
    shown = ""

    async def complete(self, messages: list[Message], options: Any, on_event: Any) -> Any:
        """Reply as the script does."""
        if not self.at:
            self.at, self.shown = time.monotonic(), messages[-1].content
        return await super().complete(messages, options, on_event)


async def first_request(folder: Path, out: Path) -> dict[str, float]:
    """Return the seconds from a new session to its first request, and what it copied and showed."""
    model, began = First(["```python\nfinal_answer(1)\n```"]), time.monotonic()
    async with Session(model=model, data=folder, out=out, format="fenced") as session:
        await session.run("How much rain fell in Boston in 2021?")
    copied = sum(p.lstat().st_size for p in (out / "data").rglob("*") if not p.is_symlink())
    listing = model.shown[model.shown.index("- data/") :].partition("\n\n")[0]
    return {"seconds": model.at - began, "copied_bytes": copied, "shown_chars": len(listing)}


READ = """import pandas as pd

path = find_data({question!r})["path"][0]
table = pd.read_csv(path, sep=None, engine="python", skiprows={skipped})
print(table.describe(include="all").to_string())
final_answer(table.iloc[:, -1].value_counts().head())"""


async def travels(folder: Path, away: Path) -> list[str]:
    """Return the questions whose notebooks do not run again in another place, without the folder.

    Each cell finds a file, reads it and shows it; the notebook is exported with what it read.
    """
    questions = list({**TRIED, **UNSEEN}.items())[:30]
    for number, (question, (needed, *_)) in enumerate(questions):
        title = "fraud" in question or "identity" in question or "sensors" in needed
        code = READ.format(question=question, skipped=2 if title else 0)
        model = ScriptedModel([f"I read it.\n\n```python\n{code}\n```"])
        out = away / f"run-{number}"
        async with Session(model=model, data=folder, out=out, format="fenced") as session:
            run = await session.run(question)
        there = away / f"there-{number}"
        there.mkdir()
        export(run.trace, there / "run.ipynb")
        copy_read(read_trace(run.trace), out, there)
    folder.rename(folder.with_name("gone"))
    again = [
        await verify_notebook(away / f"there-{number}" / "run.ipynb")
        for number in range(len(questions))
    ]
    return [q for (q, _), report in zip(questions, again, strict=True) if not report.reproduces]


def many(folder: Path, files: int, kilobytes: float) -> None:
    """Write many tables of some layouts."""
    rows = int(kilobytes * 1000 / 26)
    for number in range(files):
        path = folder / f"part{number // 250:03}" / f"table{number:06}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"date,region,amount{number % 50}"]
        lines += [
            f"2024-01-{day % 28 + 1:02},r{day % 7},{day * 37 % 1000}.5" for day in range(rows)
        ]
        path.write_text("\n".join(lines))


def main() -> None:
    """Measure, print, and write the results."""
    if sys.argv[1:2] == ["--alone"]:
        result = asyncio.run(first_request(Path(sys.argv[2]), Path(sys.argv[3])))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(json.dumps({**result, "host_mb": round(peak)}))
        return
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "lake"
        lake = Lake(folder)
        lake.fill()
        missed = {
            "tried": asyncio.run(found_first(folder, TRIED)),
            "unseen": asyncio.run(found_first(folder, UNSEEN)),
        }
        broken = asyncio.run(travels(folder, Path(made)))
        large = Path(made) / "large"
        many(large, 1_754, 232)
        firsts, again = [], []
        for number in range(5):
            os.environ["XDG_CACHE_HOME"] = f"{made}/cache{number}"
            for found, name in ((firsts, f"out{number}"), (again, f"again{number}")):
                found.append(asyncio.run(first_request(large, Path(made) / name)))
    with tempfile.TemporaryDirectory() as made:
        many(Path(made) / "lake", 100_000, 1)
        os.environ["XDG_CACHE_HOME"] = f"{made}/cache"
        alone = [
            json.loads(
                subprocess.run(
                    [sys.executable, __file__, "--alone", f"{made}/lake", f"{made}/{name}"],
                    check=True,
                    capture_output=True,
                ).stdout
            )
            for name in ("out", "again")
        ]
    measured = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_at_start": round(load, 2),
        "files": 1_754,
        "first_request_s": sorted(first["seconds"] for first in firsts),
        "first_request_again_s": sorted(each["seconds"] for each in again),
        "copied_bytes": firsts[0]["copied_bytes"],
        "shown_chars": firsts[0]["shown_chars"],
        "hundred_thousand": alone[0],
        "hundred_thousand_again": alone[1],
        "questions": {
            half: {"asked": len(asked), "missed": missed[half]}
            for half, asked in (("tried", TRIED), ("unseen", UNSEEN))
        },
    }
    measured["notebooks"] = {"exported_with_data": 30, "not_the_same_elsewhere": broken}
    RESULTS.write_text(json.dumps(measured, indent=1) + "\n")
    sys.stdout.write(f"{RESULTS.read_text()}")


if __name__ == "__main__":
    main()
