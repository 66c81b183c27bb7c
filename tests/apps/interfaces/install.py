# SPDX-License-Identifier: MIT
"""cmake --install under a prefix and a DESTDIR: what lies where, and programs that run from there."""

import glob
import os
import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness, pings
from support.harness import check, row

CONFIGURATION = "etc/libibverbs.d/uiw.driver"


def install(bench, prefix, destination=None):
    """Installs; returns the folder that is the prefix's root."""
    env = {"DESTDIR": destination}
    bench.run(["cmake", "--install", bench.build, "--prefix", prefix], 60, uiw=False, env=env)
    return (destination or "") + prefix


def only(pattern):
    found = glob.glob(pattern, recursive=True)
    check(len(found) == 1, f"{pattern}: {found}")
    return found[0]


def private_abis():
    """Those that plugins are built for, from the list of releases."""
    sources = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
    with open(f"{sources}/provider/plugin/abi/releases.def") as file:
        found = re.findall(r"^UIW_PRIVATE_ABI\((\d+)", file.read(), re.M)
    check(found, "releases.def lists no private ABI")
    return found


def check_layout(root):
    library = only(f"{root}/lib*/**/libuiw.so.1")
    folder = os.path.dirname(library)
    for name in ("libuiw-preload.so", *(f"libibverbs/libuiw-rdmav{abi}.so" for abi in private_abis())):
        check(os.path.exists(f"{folder}/{name}"), f"no {folder}/{name}")
    check(os.access(f"{root}/bin/uiw", os.X_OK), f"no {root}/bin/uiw")
    for name in ("bash-completion/completions/uiw", "zsh/site-functions/_uiw", "fish/vendor_completions.d/uiw.fish"):
        check(os.path.exists(f"{root}/share/{name}"), f"no {root}/share/{name}")
    return folder


def check_pages(bench, root):
    """The manual pages lie where man looks, as they were made, with the version of uiw."""
    with open(f"{bench.build}/CMakeCache.txt") as cache:
        settings = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read(), re.M))
    if settings["UIW_MAN"] != "ON":
        return
    for page in ("man1/uiw.1", "man7/uiw.7", "man7/uiwdv.7"):
        check(os.path.exists(f"{root}/share/man/{page}"), f"no manual page {page}")
        with open(f"{root}/share/man/{page}") as text:
            check(f"uiw {settings['CMAKE_PROJECT_VERSION']}" in text.read(), f"{page} has another version")


def check_development(bench, root, folder):
    """A C and a C++ program are built against what was installed, as pkg-config says, and run with it."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "uses_uiwdv.c")
    harness.need_program("pkg-config")
    ask = ["env", f"PKG_CONFIG_PATH={folder}/pkgconfig", "pkg-config"]
    flags = bench.command([*ask, "--cflags", "--libs", "libuiw"]).stdout.split()
    check(f"-I{root}/include" in flags and f"-L{folder}" in flags, f"libuiw.pc names other folders: {flags}")
    version = bench.command([*ask, "--modversion", "libuiw"]).stdout.strip()
    told = bench.command([f"{root}/bin/uiw", "--version"]).stdout
    check(version in told.split(), f"libuiw.pc says version {version}, and uiw --version: {told}")
    for compiler, language in (("cc", ["-std=c99"]), ("c++", ["-x", "c++", "-std=c++11"])):
        harness.need_program(compiler)
        program = f"{bench.tmp}/uses_uiwdv"
        bench.command([compiler, *language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-x", "none",
                       "-o", program, *flags])
        listed = bench.run([program], env={"LD_LIBRARY_PATH": folder}).stdout
        check("uiw_lo: uiw " in listed, f"{compiler}: uiw_lo is not taken")


def check_runs(bench, root):
    bench.uiw = f"{root}/bin/uiw"
    doctor = bench.command([bench.uiw, "doctor"])
    check(root in doctor.stdout, f"uiw doctor found other files than those under {root}:\n{doctor.stdout}")
    pings.pair(bench, "-C", 20, "-V")


@row("a prefix below a home directory: the driver file is under it and names the plugin by its path")
def own_prefix(bench):
    prefix = f"{bench.tmp}/prefix"
    root = install(bench, prefix)
    folder = check_layout(root)
    with open(f"{prefix}/{CONFIGURATION}") as driver:
        check(driver.read() == f"driver {folder}/libibverbs/libuiw\n", "uiw.driver names another plugin")
    check_pages(bench, root)
    check_runs(bench, root)


@row("C and C++ programs are built with pkg-config against what is installed, and run with it")
def development(bench):
    root = install(bench, f"{bench.tmp}/prefix")
    check_development(bench, root, check_layout(root))


@row("DESTDIR and /usr, as for a package: the tree runs from where it lies")
def package(bench):
    destination = f"{bench.tmp}/package"
    root = install(bench, "/usr", destination)
    check_layout(root)
    check_pages(bench, root)
    with open(f"{destination}/{CONFIGURATION}") as driver:
        check(driver.read().startswith("driver "), "uiw.driver names no driver")
    check_runs(bench, root)


@row("folders that are there already keep their modes")
def modes(bench):
    prefix = f"{bench.tmp}/shared"
    names = ("include", "include/infiniband", "bin", "share/man/man1", "share/man/man7")
    folders = [f"{prefix}/{name}" for name in names]
    for folder in folders:
        os.makedirs(folder)
        os.chmod(folder, 0o2775)  # as Debian makes them under /usr/local
    install(bench, prefix)
    for folder in folders:
        check(os.stat(folder).st_mode & 0o7777 == 0o2775, f"{folder} has other rights than before")


sys.exit(harness.main())
