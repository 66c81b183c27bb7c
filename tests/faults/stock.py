# SPDX-License-Identifier: MIT
"""Stock programs in which an allocation or a system call of uiw's fails, one in each run: no signal ends them, and neither
end waits for ever without a word. (Some wait for their own threads where a call has failed, and have said so.)

Each row takes some of the places in uiw that make such calls, in one of the two ends; `--setting FAULTS=sites` takes every
place once, and `--setting FAULTS=all` every call; both want a longer --deadline. `--setting "FAULT=recv ENOMEM 4"` takes
that one."""

import os
import signal
import sys
import time

from places import readable  # also makes support importable
from support import harness, perftest
from support.harness import add_row, check

PATIENCE = 2  # seconds that an end may go on alone, before the test ends the other one
ENOUGH = 8    # seconds for an end that has said what failed
MOST = 30     # seconds for any


def calls_with_freed_ids(end):
    """Whether a client of perftest 4.5 was refused, and then called again: it takes the rdma_cm ids for that from memory
    that it has freed (rdma_cm_destroy_cma), and may find anything there."""
    return end.status() == -signal.SIGSEGV and "Failed to connect RDMA CM events." in end.stderr


class Ends:
    """A server and a client, one of which (`faulty`) meets the fault that the control file names."""

    def __init__(self, bench, server, client, faulty, settings):
        self.bench, self.words, self.faulty = bench, {"server": server, "client": client}, faulty
        self.settings = settings
        self.control = os.path.join(bench.tmp, "control")
        self.tool = os.path.join(bench.build, "tests", "faults", "uiw_faults")
        self.library = os.path.join(bench.build, "tests", "faults", "libfaults.so")

    def asked(self, *options):
        ended = self.bench.command([self.tool, "--control", self.control, *options])
        self.bench.processes.remove(ended)
        return ended.stdout

    def start(self, end, port):
        words = [str(port) if word == "PORT" else word for word in self.words[end]]
        env = {"LD_PRELOAD": self.bench.preload, "UIW_STARTUP_TIMEOUT": "2000", **self.settings}
        if end == self.faulty:
            env.update(LD_PRELOAD=self.library + " " + self.bench.preload, FAULTS_CONTROL=self.control)
        return self.bench.start(words, uiw=False, env=env)

    def talk(self, port, patience=PATIENCE):
        """Runs both until they have ended; what is wrong, or nothing, and whether both ended well."""
        server = self.start("server", port)
        while server.running() and not harness.listening(port, server.pid):
            time.sleep(0.001)
            if time.monotonic() > server.began + PATIENCE:
                break
        client = self.start("client", port)
        ends = {"server": server, "client": client}
        alone, ended_by_test, wrong = None, set(), []
        while any(end.running() for end in ends.values()):
            now = time.monotonic()
            if not all(end.running() for end in ends.values()):
                alone = alone or now
            if (alone and now > alone + patience) or now > client.began + 2 * patience:
                # The end that has not met the fault may wait for the other one; that one has to end by itself then.
                for name, end in ends.items():
                    if end.running() and name != self.faulty:
                        ended_by_test.add(name)
                        end.end()
            # A server to which a call does not come waits for the next one.
            waiting = [name for name, end in ends.items() if end.running() and not end.stderr
                       and (name == "client" or "client" in ended_by_test)]
            if now > client.began + (MOST if waiting else max(ENOUGH, patience)):
                wrong += [f"the {name} does not end" for name in waiting]
                ended_by_test.update(ends)
                break
            time.sleep(0.002)
        for name, end in ends.items():
            end.end()
            status = end.status()
            if status is not None and status < 0 and name not in ended_by_test and not calls_with_freed_ids(end):
                wrong.append(f"the {name} ends with {harness.describe(status)}")
        good = not wrong and not ended_by_test and all(end.status() == 0 for end in ends.values())
        said = "\n".join(end.report() for end in ends.values()) if wrong else ""
        return wrong, good, said


def sweep(bench, server, client, faulty, start, every, settings):
    ends = Ends(bench, server, client, faulty, settings)
    port = bench.port()
    ends.asked("--log")

    def undisturbed():
        wrong, good, said = ends.talk(port, patience=MOST)
        check(good, f"without a fault: {wrong}\n{said}")

    perftest.patient(bench, undisturbed)
    bench.processes.clear()
    extent = [] if bench.settings.get("FAULTS") == "all" else ["--sites"]
    if "FAULTS" in bench.settings:
        start, every = 0, 1
    points = [line.split() for line in ends.asked("--points", *extent).splitlines()][start::every]
    if "FAULT" in bench.settings:
        points = [bench.settings["FAULT"].split()]
    check(points, "uiw has made no call")
    bad, met, well = [], 0, 0
    for function, error, nth in points:
        ends.asked("--function", function, "--error", error, "--nth", nth)
        wrong, good, said = ends.talk(port)
        bench.processes.clear()
        place = ends.asked("--result").strip()
        met += bool(place)
        well += good
        if wrong:
            bad.append(f"WRONG {function} {error} {nth}: {'; '.join(wrong)} at {readable(bench, place)}\n{said}")
            print(bad[-1][:3000], flush=True)
    check(not bad, f"{len(bad)} wrong:\n" + "\n".join(bad)[:20000])
    print(f"      {len(points)} faults, {met} met, {well} made no difference")
    check(met * 4 > len(points), "few of the faults were met")


# Both ends name the device: which comes first depends on how libibverbs finds them, by netlink or in sysfs.
PROGRAMS = [
    ("rping", ["rping", "-s", "-a", "127.0.0.1", "-p", "PORT"], ["rping", "-c", "-a", "127.0.0.1", "-p", "PORT", "-C", "5"], {}),
    ("ibv_rc_pingpong", ["ibv_rc_pingpong", "-d", "uiw_lo", "-g", "0", "-p", "PORT", "-n", "50", "-e"],
     ["ibv_rc_pingpong", "-d", "uiw_lo", "-g", "0", "-p", "PORT", "-n", "50", "-e", "127.0.0.1"], {}),
    ("ib_write_bw", ["ib_write_bw", "-R", "-n", "20", "-p", "PORT"],
     ["ib_write_bw", "-R", "-n", "20", "-p", "PORT", "127.0.0.1"], {"UIW_SAME_HOST": "tcp"}),
    ("ibv_ud_pingpong", ["ibv_ud_pingpong", "-d", "uiw_lo", "-g", "0", "-p", "PORT", "-n", "20"],
     ["ibv_ud_pingpong", "-d", "uiw_lo", "-g", "0", "-p", "PORT", "-n", "20", "127.0.0.1"], {"UIW_TRANSPORT": "roce"}),
]
for _number, (_name, _server, _client, _settings) in enumerate(PROGRAMS):
    for _faulty in ("server", "client"):
        add_row(f"{_name}: a fault in the {_faulty}",
                lambda bench, server=_server, client=_client, faulty=_faulty, number=_number, settings=_settings:
                sweep(bench, server, client, faulty, 20 * number, 90, settings))

if __name__ == "__main__":
    sys.exit(harness.main())
