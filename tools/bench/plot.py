# SPDX-License-Identifier: MIT
"""The picture of `uiw bench --plot`, which gnuplot draws: bandwidth over message size on the left, latency percentiles on the
right."""
import os

from processes import PLAIN, memory_file, run_program

# The implementations that are compared, and their colours in both halves. Colour-blind people can tell these colours
# apart.
UIW_SHARED_MEMORY, UIW_TCP, UCX, PLAIN_TCP = "uiw, shared memory", "uiw, TCP", "UCX, shared memory", "plain TCP"
COLOURS = {UIW_SHARED_MEMORY: "#0072b2", UIW_TCP: "#e69f00", UCX: "#009e73", PLAIN_TCP: "#8c8c8c"}

# The size is that of the text column of a web page.
HEAD = """set terminal svg size 1000,420 font 'sans-serif,13' background 'white'
set encoding utf8
set output {file}
set multiplot layout 1,2 margins 0.075,0.985,0.2,0.96 spacing 0.1
set border 3 linecolor rgb '#555555'
set tics nomirror
set mxtics 1
set mytics 1
set format y '%g'
set grid ytics linecolor rgb '#dddddd' linetype 1
set logscale y 10
set label {caption} at screen 0.985,0.035 right font ',10' textcolor rgb '#777777'
"""

BANDWIDTH_AXES = """set logscale x 2
set xrange [45:6000000]
set key bottom right Left reverse samplen 2 width 1
set xtics ('64 B' 64, '1 KiB' 1024, '16 KiB' 16384, '256 KiB' 262144, '4 MiB' 4194304)
set xlabel 'message size'
set ylabel 'bandwidth, Gb/s'
"""

# Bars on a logarithmic axis have no zero to start at, so they start at a fixed time.
LATENCY_AXES = """unset label
unset logscale x
set xrange [0.5:3.5]
set key top left
set xtics ('50th' 1, '99th' 2, '99.9th' 3)
set yrange [0.1:*] noextend
set offsets 0,0,graph 0.2,0
set xlabel 'percentile'
set ylabel 'latency, 8 octets one way, microseconds'
set style fill solid noborder
"""


def quoted(text):
    """The text as a string of gnuplot, in which only the quote is special."""
    return "'" + text.replace("'", "''") + "'"


def data_block(name, points):
    """A data block of gnuplot. Each line has an x, a y, and the y as it is shown."""
    lines = (f"{x:.6g} {y:.6g} {y:.{2 if y < 10 else 1 if y < 100 else 0}f}\n" for x, y in points)
    return f"{name} << END\n{''.join(lines)}END\n"


def look(subject, program):
    title = f"plain TCP ({program})" if subject == PLAIN_TCP else subject
    return f"linecolor rgb '{COLOURS[subject]}' title {quoted(title)}"


def plot(curves):
    return "plot " + ", \\\n  ".join(curves) + "\n"


def bandwidth_half(curves):
    curves = [(f"$bandwidth{number}", *curve) for number, curve in enumerate(each for each in curves.items() if each[1])]
    if not curves:
        return ""
    return "".join(data_block(name, points) for name, _, points in curves) + BANDWIDTH_AXES + plot(
        f"{name} using 1:2 with linespoints linewidth 2 pointtype 7 pointsize 0.6 {look(subject, 'iperf3')}"
        for name, subject, _ in curves)


def latency_half(latencies):
    if not latencies:
        return ""
    group = 0.84  # the part of the distance between two groups that the bars of a group fill
    width = group / len(latencies)
    data, bars = "", []
    for number, (subject, percentiles) in enumerate(latencies.items()):
        name, offset = f"$latency{number}", (width - group) / 2 + number * width
        data += data_block(name, [(place + offset, value) for place, value in enumerate(percentiles, 1)])
        bars += [f"{name} using 1:2 with boxes {look(subject, 'sockperf')}",
                 f"{name} using 1:2:3 with labels offset 0,0.6 font ',10' notitle"]
    return f"{data}{LATENCY_AXES}set boxwidth {width * 0.92:.6g}\n{plot(bars)}"


def script(picture, file):
    """The commands of gnuplot that write the picture to `file`, as SVG. A curve without points is left out."""
    processors, runs = picture["processors"], picture["runs"]
    caption = (f"{processors} {'processor' if processors == 1 else 'processors'}, one host; "
               + ("one run" if runs == 1 else f"medians of {runs} runs"))
    return (HEAD.format(file=quoted(file), caption=quoted(caption)) + bandwidth_half(picture["bandwidth"])
            + latency_half(picture["latency"]) + "unset multiplot\n")


def draw(text):
    with memory_file(os.fsencode(text)) as file:
        # A file name and not "-", since gnuplot does not stop at an error in its standard input.
        run_program(["gnuplot", "--default-settings", "/proc/self/fd/0"], PLAIN, 15, stdin=file)


def cannot_write(file):
    """Why the file cannot be written, in one line; empty if it seems that it can be. Asked before measuring."""
    if os.path.isdir(file):
        return f"{file} is a directory"
    asked = file if os.path.exists(file) else os.path.dirname(file) or "."
    try:
        os.stat(asked)
    except OSError as error:
        return f"{file} cannot be written: {asked}: {error.strerror}"
    return "" if os.access(asked, os.W_OK) else f"{file} cannot be written: {asked} is not writable"
