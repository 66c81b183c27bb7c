# SPDX-License-Identifier: MIT
"""The report of `uiw bench`: one row for each measurement, with the value of plain TCP or of a similar operation beside it.
Report and row are dictionaries, the objects that --json prints."""
import json
from statistics import median

from plan import GBITS, MESSAGES, MICROSECONDS, PLAIN_TCP, SECONDS, unit_of


def empty_report(setup, runs, processors):
    """`left_out` is for lines that say which rows are left out, and why."""
    return {"device": setup.device, "address": setup.address, "processors": processors, "runs": runs,
            "seconds": setup.seconds, "rows": [], "left_out": []}


def empty_row(row):
    unit = unit_of(row.own)
    tcp = row.reference.name if row.reference.what in PLAIN_TCP else None
    return {"id": row.id, "measure": row.own.name, "unit": unit,
            "better": "smaller" if unit in (MICROSECONDS, SECONDS) else "larger", "uiw": None, "tcp": None,
            "tcp_measured_by": tcp, "against": None, "against_measured_by": row.reference.name, "ratio": None, "spread": None,
            "target": row.target, "met": None, "repeated": None, "error": None}


def summarize(result, pairs):
    """Sets the medians over the pairs (reference, own). The ratio is the median of the pairs' ratios, which is not
    exactly the ratio of the medians."""
    ratios = [own / reference for reference, own in pairs]
    result.update(uiw=median(own for _, own in pairs), against=median(reference for reference, _ in pairs),
                  ratio=median(ratios), spread=[min(ratios), max(ratios)])
    if result["tcp_measured_by"]:
        result["tcp"] = result["against"]
    if result["target"] is not None:
        result["met"] = (result["ratio"] <= result["target"] if result["better"] == "smaller"
                         else result["ratio"] >= result["target"])


DIGITS = {GBITS: 1, MICROSECONDS: 2, SECONDS: 3}


def value_text(value, unit):
    """"41.2 Gb/s", "2.14 us", "0.212 s", "1.05 M/s", "51.4 k/s"."""
    if unit == MESSAGES:  # below 0.1 M/s two decimals of M/s are too coarse
        return f"{value / 1e3:.1f} k/s" if value < 1e5 else f"{value / 1e6:.2f} M/s"
    return f"{value:.{DIGITS[unit]}f} {unit}"


def cells_of(row):
    failed = row["ratio"] is None
    bound = "at most" if row["better"] == "smaller" else "at least"
    return [row["measure"],
            "failed" if failed else value_text(row["uiw"], row["unit"]),
            "-" if failed else value_text(row["against"], row["unit"]),
            row["against_measured_by"],
            "-" if failed else f"{row['ratio']:.2f}",
            "-" if failed else "{:.2f} to {:.2f}".format(*row["spread"]),
            "-" if row["target"] is None else f"{bound} {row['target']:.2f}",
            {None: "-", True: "met", False: "not met"}[row["met"]]]


def json_line(report):
    return json.dumps(report) + "\n"


def table(report):
    lines = [["MEASURE", "UIW", "AGAINST", "MEASURED BY", "RATIO", "SPREAD", "TARGET", "RESULT"],
             *map(cells_of, report["rows"])]
    widths = [max(map(len, column)) for column in zip(*lines)]
    runs = report["runs"]
    text = (f"RDMA over uiw beside plain TCP on device {report['device']} ({report['address']}), {report['processors']} "
            f"processors; medians of {runs} {'pair' if runs == 1 else 'pairs'} measured in turns, {report['seconds']} s "
            "each\n\n")
    for cells in lines:
        text += "  ".join(cell.ljust(width) for cell, width in zip(cells[:-1], widths)) + f"  {cells[-1]}\n"
    remarks = [f"{row['measure']} against {row['against_measured_by']}: {how}: {row[key]}" for row in report["rows"]
               for key, how in (("repeated", "measured again after"), ("error", "failed")) if row[key]]
    remarks += ["left out: " + line for line in report["left_out"]]
    return text + "".join(f"{line}\n" for line in ([""] if remarks else []) + remarks)
