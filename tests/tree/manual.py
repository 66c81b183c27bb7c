# SPDX-License-Identifier: MIT
"""The manual pages say all that the code has: uiw(7) and uiw(1) each setting with its values and default, uiw(1) each
option and command of `uiw`, uiwdv(7) each function and constant of uiwdv.h. They are well formed, and no link between
documents is broken.

usage: python3 tests/tree/manual.py [SOURCE-DIRECTORY] [--pages DIRECTORY] [--uiw COMMAND...]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

PAGES = ("uiw.1", "uiw.7", "uiwdv.7")
ROW = re.compile(r'\{\s*(?:"(UIW_\w+)"|kMessages),\s*"(--[\w-]+)",\s*"([^"]*)",\s*"([^"]*)"')
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def plain(text):
    """Without marks, and each run of white space as one space."""
    return re.sub(r"\s+", " ", re.sub(r"``|\*\*|\\ ", "", text))


def sections(text, underline):
    """Title -> text of the sections whose titles are underlined with this character."""
    parts = re.split(rf"^(\S[^\n]*)\n{underline}{{3,}}\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def entries(text):
    """The option of a list of options -> what is said of it."""
    parts = re.split(r"^(-[^\n]*)\n(?=    )", text, flags=re.M)
    found = {}
    for term, body in zip(parts[1::2], parts[2::2]):
        for name in options_of(term):
            found[name] = plain(re.split(r"\n(?=\S)", body)[0])
    return found


def options_of(term):
    return [word for word in re.split(r"[,\s]+", term) if re.match(r"--?[a-zA-Z]", word)]


def setting_faults(root, one, seven):
    source = (root / "provider/process/settings.cc").read_text()
    rows = ROW.findall(source)
    if len(rows) != len(re.findall(r"\bSetting\{\s*\{", source)) or not rows:
        yield f"tests/tree/manual.py:1: understands {len(rows)} rows of the table of settings, and there are more"
    terms = dict(re.findall(r"^``(UIW_\w+)``, (``--[\w-]+``\n(?:    [^\n]*\n|\n)+)", seven, re.M))
    run = entries(manual_of_commands(one).get("run", ""))
    for variable, option, values, default in rows:
        variable = variable or "UIW_MESSAGES"
        said = plain(terms.pop(variable, ""))
        for what in (option, f"Values: {values}.", f"Default: {default}" if default else "Default: "):
            if what not in said:
                yield f"docs/man/uiw.7.rst: {variable} is not there with '{what}'"
        listed = run.get(option, "")
        if f"({variable})" not in listed or (default and f"default {default}." not in listed):
            yield f"docs/man/uiw.1.rst: {option} is not there with '({variable})' and its default '{default}'"
        for value in re.split(r"\.\.|\|", values) if "|" in values else ():
            if not re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", listed):
                yield f"docs/man/uiw.1.rst: {option} is not there with the value '{value}'"
    for variable in terms:
        yield f"docs/man/uiw.7.rst: {variable} is no setting"


def help_of(uiw, *command):
    """(options with what is said of them, commands) that `uiw COMMAND --help` prints."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("UIW_")}
    run = subprocess.run([*uiw, *command, "--help"], capture_output=True, text=True, env=environment, check=True)
    options, commands, heading = {}, [], ""
    names = []
    for line in run.stdout.splitlines():
        if re.match(r"\S", line):
            heading = line.rstrip().lower()
            continue
        if heading.startswith("subcommands") and (found := re.match(r"  (\w[\w-]*)", line)):
            commands.append(found.group(1))
        if not heading.startswith("options"):
            continue
        if found := re.match(r"\s{1,12}((?:--?[a-zA-Z][\w-]*(?:,\s*|\s|$))+)", line):
            names = options_of(found.group(1))
            options.update({name: line[found.end():] for name in names})
        else:
            options.update({name: options[name] + " " + line.strip() for name in names})
    return options, commands


def manual_of_commands(one):
    """The name of a command -> what uiw(1) says of it."""
    return {title.split()[0]: text for title, text in sections(sections(one, "=").get("COMMANDS", ""), "-").items()}


def command_faults(uiw, one):
    manual = manual_of_commands(one)
    options, commands = help_of(uiw)
    if not commands:
        yield f"tests/tree/manual.py:1: understands nothing of what `uiw --help` prints"
    listed = {"uiw": (options, entries(sections(one, "=").get("OPTIONS", "")))}
    for command in commands:
        if command not in manual:
            yield f"docs/man/uiw.1.rst: there is no `uiw {command}`"
            continue
        options, below = help_of(uiw, command)
        listed[f"uiw {command}"] = (options, entries(manual[command]))
        for name in below:
            if not re.search(rf"\b{re.escape(name)}\b", manual[command]):
                yield f"docs/man/uiw.1.rst: `uiw {command}` does not say {name}"
    for command, (options, said) in listed.items():
        for name, text in options.items():
            default = re.search(r"\bdefault (\w+)", text)
            if name not in said:
                yield f"docs/man/uiw.1.rst: {command} has no {name}"
            elif default and f"default {default.group(1)}" not in said[name]:
                yield f"docs/man/uiw.1.rst: {command} {name}: the default is {default.group(1)}"
        for name in said:
            if name not in options:
                yield f"docs/man/uiw.1.rst: {command} has {name}, which the program does not know"


def interface_faults(root, text):
    header = (root / "provider/include/infiniband/uiwdv.h").read_text()
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    names = set(re.findall(r"\b(uiwdv_\w+)\(", code)) | set(re.findall(r"\b(UIWDV_[A-Z]\w+)", code))
    for name in sorted(names):
        said = f"**{name}**" if name.startswith("uiwdv") else name
        if said not in text:
            yield f"docs/man/uiwdv.7.rst: does not describe {name}"
    synopsis = re.sub(r"\s+", "", sections(text, "=").get("SYNOPSIS", "")).replace("*", "")
    for declared in re.findall(r"\b(?:int|bool) uiwdv_\w+\([^;]*;", code):
        if re.sub(r"\s+", "", declared).replace("*", "") not in synopsis:
            yield f"docs/man/uiwdv.7.rst: its synopsis differs from the header: {plain(declared)}"


def source_faults(root):
    rst2man = shutil.which("rst2man") or shutil.which("rst2man.py")
    if rst2man is None:
        print("no rst2man: the sources of the pages are not checked (Debian: python3-docutils)")
        return
    for page in PAGES:
        run = subprocess.run([rst2man, "--strict", root / f"docs/man/{page}.rst"], capture_output=True, text=True,
                             env={**os.environ, "DOCUTILSCONFIG": ""})
        if run.returncode or run.stderr:
            yield f"docs/man/{page}.rst: rst2man says {run.stderr.strip()}"


def page_faults(pages):
    """What man, or groff where it is alone, complains about in the pages as they are installed."""
    if shutil.which("man"):
        command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]
    elif shutil.which("groff"):
        command = ["groff", "-t", "-man", "-K", "utf8", "-Tutf8", "-Z", "-wmac"]
    else:
        command = None
        print("neither man nor groff: what the pages look like is not checked")
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    for page in PAGES:
        path = pages / page
        if not path.is_file():
            yield f"{path}: is not there"
            continue
        left = re.search(r"@\w+@", re.sub(r'^\.\\".*$', "", path.read_text(), flags=re.M))
        if left:
            yield f"{path}: has {left[0]}, which configure_file has left"
        if command:
            run = subprocess.run([*command, path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env=environment)
            if run.returncode or run.stderr:
                yield f"{path}: {command[0]} says {run.stderr.strip()}"


def link_faults(root):
    for document in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]:
        for target in LINK.findall(document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                yield f"{document.relative_to(root)}: links to {target}, which is not there"


def main():
    parser = argparse.ArgumentParser(description="Checks that the manual pages say all that the code has.")
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parents[2], type=pathlib.Path)
    parser.add_argument("--pages", type=pathlib.Path, help="the directory of the pages that rst2man has made")
    parser.add_argument("--uiw", nargs=argparse.REMAINDER, help="how to run `uiw`; the last option")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    one, seven, interface = ((root / f"docs/man/{page}.rst").read_text() for page in PAGES)
    faults = [*setting_faults(root, one, seven), *interface_faults(root, interface), *source_faults(root),
              *link_faults(root)]
    faults += [*(command_faults(arguments.uiw, one) if arguments.uiw else ())]
    faults += [*(page_faults(arguments.pages) if arguments.pages else ())]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "the manual pages are as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
