# SPDX-License-Identifier: MIT
"""uiw --version: the version, and the commit that it was built from where that is known."""

import os
import pathlib
import re
import shutil
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import check, need_program, row

SOURCE = pathlib.Path(__file__).resolve().parents[3]
FOLDER = "tools/version"


def git(bench, tree, *words):
    author = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]
    return bench.command(["git", "-C", tree, *author, *words]).stdout


def commit_of(bench, tree):
    """What the build of a tree would say."""
    header = f"{bench.tmp}/commit.h"
    bench.command(["cmake", "-D", f"source={tree}", "-D", f"output={header}", "-P", f"{SOURCE}/{FOLDER}/commit.cmake"])
    with open(header, encoding="ascii") as file:
        return re.search(r'kCommit\[\] = "(.*)"', file.read()).group(1)


def make_tree(bench):
    tree = f"{bench.tmp}/tree"
    os.makedirs(f"{tree}/{FOLDER}")
    # As git has it; that of this tree may be of an archive.
    pathlib.Path(f"{tree}/{FOLDER}/archived-commit").write_text("$Format:%H$\n", encoding="ascii")
    shutil.copy(SOURCE / ".gitattributes", tree)
    return tree


def make_checkout(bench):
    need_program("git")
    tree = make_tree(bench)
    git(bench, tree, "init", "-q")
    git(bench, tree, "add", "-A")
    git(bench, tree, "commit", "-qm", "One")
    return tree, git(bench, tree, "rev-parse", "HEAD")[:12]


@row("one line: uiw, the version of CMakeLists.txt, and the commit if there is one")
def line(bench):
    said = bench.command([bench.uiw, "--version"]).stdout
    version = re.search(r"project\(uiw VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
    pattern = rf"uiw {re.escape(version)}( \([0-9a-f]{{12}}(\+changes)?\))?\n"
    check(re.fullmatch(pattern, said), f"uiw --version says {said!r}")


@row("a checkout: twelve digits of the commit, and whether there are changes")
def checkout(bench):
    tree, head = make_checkout(bench)
    check(commit_of(bench, tree) == head, f"not {head}: {commit_of(bench, tree)}")
    git(bench, tree, "tag", "-a", "-m", "A tag", "v1")
    check(commit_of(bench, tree) == head, f"not {head} with a tag: {commit_of(bench, tree)}")
    pathlib.Path(f"{tree}/new").touch()
    check(commit_of(bench, tree) == head, "a file that is not git's is a change")
    with open(f"{tree}/.gitattributes", "a", encoding="ascii") as file:
        file.write("# more\n")
    check(commit_of(bench, tree) == f"{head}+changes", f"not {head}+changes: {commit_of(bench, tree)}")


@row("an archive of git archive: the commit that it was made of")
def archive(bench):
    tree, head = make_checkout(bench)
    git(bench, tree, "archive", "--prefix=made/", "-o", f"{bench.tmp}/made.tar", "HEAD")
    bench.command(["tar", "-x", "-f", f"{bench.tmp}/made.tar", "-C", bench.tmp])
    check(commit_of(bench, f"{bench.tmp}/made") == head, f"not {head}: {commit_of(bench, f'{bench.tmp}/made')}")


@row("a tree without git, also in another's checkout: no commit")
def plain(bench):
    tree = make_tree(bench)
    check(commit_of(bench, tree) == "", f"a commit: {commit_of(bench, tree)}")
    need_program("git")
    git(bench, bench.tmp, "init", "-q")
    git(bench, bench.tmp, "add", "tree")
    git(bench, bench.tmp, "commit", "-qm", "One")
    check(commit_of(bench, tree) == "", f"a commit: {commit_of(bench, tree)}")
    os.mkdir(f"{tree}/.git")  # of which git knows nothing
    check(commit_of(bench, tree) == "", f"a commit: {commit_of(bench, tree)}")


@row("the header of the same commit is not written again")
def unchanged(bench):
    tree = make_tree(bench)
    commit_of(bench, tree)
    before = os.stat(f"{bench.tmp}/commit.h").st_mtime_ns
    commit_of(bench, tree)
    check(os.stat(f"{bench.tmp}/commit.h").st_mtime_ns == before, "it was written again")


sys.exit(harness.main())
