# SPDX-License-Identifier: MIT
"""The life of programs that do no RDMA is unharmed: each runs with and without uiw, and both must agree."""

import os
import pathlib
import signal
import sys
import textwrap

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, describe, row


def both(bench, argv, timeout=20, env=None, fresh=None):
    """Runs argv without and with uiw; exit status and both outputs must be equal. Returns the two runs.

    fresh: prepares the directory that both runs begin in.
    """
    runs = []
    for under in (False, True):
        cwd = os.path.join(bench.tmp, "work")
        harness.shutil.rmtree(cwd, ignore_errors=True)
        os.mkdir(cwd)
        if fresh:
            fresh(cwd)
        # The runtime directory is no concern of a program that does no RDMA.
        runs.append(bench.run(argv, timeout=timeout, status=None, uiw=under, cwd=cwd, env=env))
        runs[-1].may_die = True
    plain, under = runs
    check(plain.status() == under.status(), f"{describe(plain.status())} without, {describe(under.status())} with uiw")
    check(plain.stdout == under.stdout, "another standard output")
    check(plain.stderr == under.stderr, "another standard error")
    return plain, under


def bash(bench, script, **more):
    return both(bench, ["bash", "-c", textwrap.dedent(script)], **more)


@row("bash: pipes, redirections, traps, jobs, here documents, process substitution")
def shell(bench):
    plain, _ = bash(bench, r"""
        set -u
        seq 1 2000 | sort -rn | head -3 | tee one | wc -l
        cat <<< "here" > two; cat two
        diff <(sort one) <(sort -n one) && echo same
        (exec 7<>three; echo seven >&7; exec 7>&-; cat three)
        trap 'echo trapped' USR1; kill -USR1 $$
        sleep 0.1 & wait $!; echo waited $?
        false || echo false
        x=$(printf 'a%.0s' {1..100}); echo ${#x}
        for i in 1 2 3; do (echo sub $i; exit $i); echo $?; done
        exec 9>&1; echo nine >&9
        mkfifo four; (echo through > four) & cat four
        ulimit -n
        readlink /proc/self/fd/0
        ls /sys/class/net >/dev/null && echo net
        exit 23
    """)
    check(plain.status() == 23, "the script did not come to its end")


@row("bash: a program that uiw loads holds no descriptor, thread or child of uiw's")
def nothing_added(bench):
    bash(bench, r"""
        ls /proc/self/fd | wc -l
        grep -E '^(Threads|SigBlk|SigIgn|SigCgt)' /proc/self/status
        cat /proc/$$/task/$$/children | wc -w
        ls -A "$UIW_RUNTIME_DIR"
    """, env={"UIW_RUNTIME_DIR": bench.runtime})


@row("exit statuses and signals pass through")
def statuses(bench):
    for script in ("exit 0", "exit 7", "exit 255", "kill -9 $$", "kill -TERM $$", "kill -SEGV $$", "kill -INT $$"):
        both(bench, ["sh", "-c", f"ulimit -c 0; {script}"])


@row("standard input passes through")
def standard_input(bench):
    with open(os.path.join(bench.tmp, "input"), "wb") as file:
        file.write(os.urandom(3_000_000))
    outputs = []
    for under in (False, True):
        with open(os.path.join(bench.tmp, "input"), "rb") as file:
            outputs.append(bench.run(["sha256sum"], stdin=file, uiw=under).stdout)
    check(outputs[0] == outputs[1], "another sum")


PYTHON = r"""
import ctypes, fcntl, io, mmap, os, select, signal, socket, subprocess, sys, tempfile, threading, time

def show(*words):
    print(*words, flush=True)

# Threads that write, read, open and close.
total, lock = [0], threading.Lock()
def work(number):
    for turn in range(200):
        with tempfile.TemporaryFile() as file:
            file.write(b"x" * number); file.flush(); file.seek(0)
            with lock:
                total[0] += len(file.read())
threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
[t.start() for t in threads]; [t.join() for t in threads]
show("threads", total[0])

# Fork, with threads about, many times.
background = threading.Thread(target=lambda: time.sleep(0.5)); background.start()
codes = []
for n in range(50):
    pid = os.fork()
    if pid == 0:
        os._exit(n % 7)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
show("fork", codes)
background.join()

# fork, then exec, with pipes; environment changed.
show("subprocess", subprocess.run(["sh", "-c", "cat; echo $HELLO"], input=b"in\n", stdout=subprocess.PIPE,
                                  env={**os.environ, "HELLO": "there"}).stdout)
show("close_fds", subprocess.run(["sh", "-c", "ls /proc/self/fd | wc -l"], stdout=subprocess.PIPE).stdout)
show("popen", [p.wait() for p in [subprocess.Popen(["true"]) for _ in range(20)]])
a, b = os.pipe()
child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 5"], os.environ)
show("spawn", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

# Sockets, poll, epoll, splice-like calls, descriptors.
s, t = socket.socketpair()
s.sendall(b"abc"); show("socketpair", t.recv(10))
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname()); server, _ = listener.accept()
client.sendall(b"q" * 100000)
got = 0
while got < 100000:
    got += len(server.recv(65536))
show("tcp", got)
poll = select.epoll(); poll.register(server, select.EPOLLIN); client.send(b"!"); show("epoll", len(poll.poll(5)))
os.dup2(a, 200); os.write(b, b"dup"); show("dup2", os.read(200, 3)); os.close(200)
show("fcntl", fcntl.fcntl(a, fcntl.F_GETFD))
m = mmap.mmap(-1, 8192); m[5:8] = b"map"; show("mmap", bytes(m[5:8]))
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
show("netlink", netlink.getsockname()[0] in (0, os.getpid()))

# Files by every call.
with open("file", "w") as file: file.write("line\n" * 3)
show("stat", os.stat("file").st_size, os.lstat("file").st_size, os.access("file", os.R_OK), os.path.exists("nofile"))
os.symlink("file", "link")
show("readlink", os.readlink("link"), sorted(os.listdir(".")), sorted(entry.name for entry in os.scandir(".")))
d = os.open(".", os.O_RDONLY)
show("openat", os.read(os.open("file", os.O_RDONLY, dir_fd=d), 4), os.stat("file", dir_fd=d).st_size)
for path in ("/dev/null", "/sys/class", "/sys/devices", "/proc/self/comm", "/dev/zero"):
    show(path, os.stat(path).st_mode)
for path in ("/nonexistent/x", "", "a" * 5000, "/dev/null/x"):
    try: os.stat(path)
    except OSError as error: show("errno", error.errno)
    try: open(path)
    except OSError as error: show("errno", error.errno)
for call in (lambda: os.write(999, b"x"), lambda: os.close(999), lambda: os.read(999, 1), lambda: os.fstat(999)):
    try: call()
    except OSError as error: show("errno", error.errno)
libc = ctypes.CDLL(None, use_errno=True)
show("EFAULT", libc.write(b, ctypes.c_void_p(1), 10), ctypes.get_errno())

# Signals.
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append(1)); signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(0.3)
show("signals", hits)
show("import", __import__("sqlite3").sqlite_version > "3", __import__("ssl").HAS_TLSv1_2)
sys.exit(3)
"""


@row("python3: threads, subprocess, os.fork, sockets, files and errors")
def python(bench):
    plain, _ = both(bench, [sys.executable, "-c", PYTHON])
    check(plain.status() == 3, "the program did not come to its end")


@row("python3: multiprocessing and asyncio")
def multiprocessing(bench):
    both(bench, [sys.executable, "-c", textwrap.dedent("""
        import asyncio, multiprocessing
        def square(x): return x * x
        async def main():
            p = await asyncio.create_subprocess_exec("echo", "async", stdout=asyncio.subprocess.PIPE)
            print((await p.communicate())[0])
        if __name__ == "__main__":
            for method in ("fork", "forkserver"):
                with multiprocessing.get_context(method).Pool(3) as pool:
                    print(sum(pool.map(abs, range(-1000, 0))))
            asyncio.run(main())
    """)])


@row("git: init, add, commit, log, clone, gc")
def git(bench):
    harness.need_program("git")
    stamp = "2020-01-01T00:00:00Z"
    env = {"HOME": bench.tmp, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@localhost",
           "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@localhost", "GIT_AUTHOR_DATE": stamp,
           "GIT_COMMITTER_DATE": stamp, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "init.defaultBranch",
           "GIT_CONFIG_VALUE_0": "main"}
    plain, _ = bash(bench, """
        set -e
        git init -q here; cd here
        for i in $(seq 50); do mkdir -p d$((i % 7)); seq $i 500 > d$((i % 7))/f$i; done
        git add .; git commit -q -m one
        echo more >> d1/f1; git commit -q -a -m two; git rev-parse HEAD; git log --stat --format='%H %s'
        git gc -q; git fsck --no-progress; cd ..; git clone -q here there
        git -C there log --oneline; git -C there status
    """, env=env)
    check(plain.status() == 0, "git failed without uiw")


def write_project(folder, files=30):
    names = []
    for number in range(files):
        names.append(f"part{number}")
        body = "\n".join(
            f"int f{number}_{k}(int x) {{ return x * {k + 1} + (x > {k} ? f{number}_{k - 1}(x - 1) : {k}); }}"
            for k in range(1, 40))
        with open(os.path.join(folder, f"part{number}.c"), "w") as file:
            file.write(f"#include <stdio.h>\nstatic int f{number}_0(int x) {{ return x; }}\n{body}\n")
    with open(os.path.join(folder, "main.c"), "w") as file:
        file.write("#include <stdio.h>\n" + "".join(f"int f{n}_39(int);\n" for n in range(files))
                   + "int main(void) { unsigned s = 0;\n" + "".join(f"s += f{n}_39({n});\n" for n in range(files))
                   + 'printf("%u\\n", s); return 0; }\n')
    with open(os.path.join(folder, "Makefile"), "w") as file:
        file.write("CFLAGS = -O2\nprogram: " + " ".join(f"{n}.o" for n in names + ["main"])
                   + "\n\t$(CC) -o $@ $^\n")


@row("a build with make and gcc: the same binary")
def build(bench):
    harness.need_program("make", "gcc")
    plain, _ = bash(bench, "make -s -j2 program && ./program && sha256sum *.o program | sha256sum",
                    fresh=write_project, timeout=60)
    check(plain.status() == 0, "the build failed without uiw")


@row("tar, find, grep, sort, gzip, awk over a tree")
def tools(bench):
    bash(bench, """
        find /usr/include -maxdepth 2 -type f | LC_ALL=C sort | head -400 > list
        tar cf - --sort=name -T list 2>/dev/null | tee >(sha256sum > sum) | gzip -1n | gzip -d | sha256sum
        wait; until [ -s sum ]; do sleep 0.01; done; cat sum  # a process substitution is not waited for
        xargs grep -c include < list | awk -F: '{ s += $2 } END { print s }'
        df / > /dev/null && stat -c %F /dev/null /sys/class /dev
    """)


@row("a static binary, which loads no libc")
def static(bench):
    harness.need_program("gcc")
    source = os.path.join(bench.tmp, "s.c")
    with open(source, "w") as file:
        file.write('#include <unistd.h>\nint main(void) { return write(1, "static\\n", 7) == 7 ? 4 : 1; }\n')
    program = os.path.join(bench.tmp, "s")
    if bench.command(["gcc", "-static", "-o", program, source], status=None).status() != 0:
        raise harness.Skip("no static libc")
    plain, under = bench.run([program], uiw=False, status=4), bench.run([program], status=4)
    check(plain.stdout == under.stdout, "another standard output")
    # uiw run may warn that it cannot reach into it.
    check(under.stderr == "" or "static" in under.stderr, "another standard error")


VERBS_FORK = r"""
import ctypes, os, subprocess, sys, threading
v = ctypes.CDLL("libibverbs.so.1", use_errno=True)
for name in ("ibv_get_device_list", "ibv_open_device", "ibv_alloc_pd", "ibv_create_cq", "ibv_create_comp_channel"):
    getattr(v, name).restype = ctypes.c_void_p
def use():
    count = ctypes.c_int()
    devices = v.ibv_get_device_list(ctypes.byref(count))
    assert devices and count.value > 0, "no device"
    context = v.ibv_open_device(ctypes.c_void_p(ctypes.cast(devices, ctypes.POINTER(ctypes.c_void_p))[0]))
    assert context, "no context"
    pd = v.ibv_alloc_pd(ctypes.c_void_p(context)); assert pd
    channel = v.ibv_create_comp_channel(ctypes.c_void_p(context)); assert channel
    return devices, context, pd, channel
def drop(devices, context, pd, channel):
    assert v.ibv_destroy_comp_channel(ctypes.c_void_p(channel)) == 0
    assert v.ibv_dealloc_pd(ctypes.c_void_p(pd)) == 0
    assert v.ibv_close_device(ctypes.c_void_p(context)) == 0
    v.ibv_free_device_list(ctypes.c_void_p(devices))
held = use()
for n in range(10):
    pid = os.fork()
    if pid == 0:  # a child may leave at once, by exit, by exec, or use verbs of its own
        if n % 4 == 0: os._exit(0)
        if n % 4 == 1: sys.exit(0)
        if n % 4 == 2: os.execvp("ibv_devices", ["ibv_devices"])
        drop(*use()); sys.exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, (n, status)
assert subprocess.run(["ibv_devinfo"], stdout=subprocess.DEVNULL).returncode == 0
drop(*held)
for _ in range(20):
    drop(*use())
threads = [threading.Thread(target=lambda: drop(*use())) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(os.listdir("/proc/self/fd")) <= 10, "descriptors")  # three are standard, one lists, four of uiw-cm, two of forks
"""


@row("fork and exec in a program that uses verbs; contexts come and go")
def verbs_fork(bench):
    shown = bench.run([sys.executable, "-c", VERBS_FORK]).stdout
    check("True descriptors" in shown, "descriptors stayed open")


@row("an exec keeps uiw; a new environment drops it")
def across_exec(bench):
    bench.run(["bash", "-c", "exec ibv_devinfo"])
    bench.run(["nice", "setsid", "-w", "ibv_devinfo"])
    bench.run(["env", "-u", "LD_PRELOAD", "true"])
    dropped = bench.run(["env", "-i", "/usr/bin/ibv_devinfo"], status=None)
    check(dropped.status() >= 0, "it crashed")


@row("SIGTERM to uiw run is SIGTERM to the program")
def terminated(bench):
    program = bench.start(["sleep", "100"])
    harness.wait_until(lambda: "sleep 100" == harness.command_line(program.pid), 10, "sleep runs in uiw's process")
    program.kill(signal.SIGTERM)
    check(program.wait(5) == -signal.SIGTERM, "not ended by the signal")


if __name__ == "__main__":
    sys.exit(harness.main())
