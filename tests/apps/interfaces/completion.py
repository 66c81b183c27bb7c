# SPDX-License-Identifier: MIT
"""bash, zsh and fish complete uiw's command line, with all that `uiw --help` has: by the files that are installed, and as
`uiw completion` prints them."""

import os
import pathlib
import re
import shutil
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(TESTS / "apps"), str(TESTS / "tree")]
from manual import help_of
from support import harness
from support.harness import Skip, check, need_program, row

FILES = TESTS.parent / "tools" / "completion"
BASH_COMPLETION = "/usr/share/bash-completion/bash_completion"
PROGRAM = "uiwtest-program"
FILE, FOLDER = "test-of-file", "test-of-folder"

# A command line, and all that is offered for its last word. Words behind "=" stand without what is before it; for an
# empty word, zsh may offer options too.
LINES = [
    ("uiw be", "bench"),
    ("uiw x", ""),
    ("uiw bench --quick --du", "--duration"),
    ("uiw devices ", ""),
    ("uiw completion ", "bash zsh fish"),
    ("uiw completion z", "zsh"),
    ("uiw completion zsh ", ""),
    ("uiw run --crc=o", "on off"),
    ("uiw run --crc on --tr", "--transport"),
    ("uiw run --transport r", "roce"),
    ("uiw run uiwtest-p", PROGRAM),
    ("uiw run --crc on uiwtest-p", PROGRAM),
    ("uiw run --devices eth0=mlx5_0 uiwtest-p", PROGRAM),
    ("uiw run -- uiwtest-p", PROGRAM),
    ("uiw run uiwtest-program --cr", ""),
    ("uiw run uiwtest-program bench --qu", ""),
]
# What the program's own completion offers: that of uiw is one that is there, and other programs get files.
PROGRAM_LINES = [
    ("uiw run uiw be", "bench"),
    ("uiw run --crc on uiw bench --qu", "--quick"),
    ("uiw run -- uiw run --cr", "--crc"),
    ("uiw run --mpa-revision=2 uiwtest-program test-of-", f"{FILE} {FOLDER}"),
]

# Each prints, for each line of standard input, "LINE<tab>WORD WORD...".
BASH = r"""
words_of() { COMP_WORDS=() COMP_LINE=$1 COMP_POINT=${#1}
  local part; for part in ${1//=/ = }; do COMP_WORDS+=("$part"); done
  [[ $1 == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); }
compopt() { case $* in  # what readline does behind the function
  "-o default") mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
  "-o dirnames") mapfile -t COMPREPLY < <(compgen -d -- "$word") ;; esac; }
while IFS= read -r line; do
  words_of "$line"; COMPREPLY=()
  _uiw uiw "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null
  printf '%s\t%s\n' "$line" "${COMPREPLY[*]}"
done
"""
FISH = r"""
while read -z -l line
    printf '%s\t%s\n' $line (complete -C $line | string replace -r '\t.*' '' | string join ' ')
end < $argv[1]
"""
# In an interactive zsh, since only its line editor completes: compadd is asked which of its words match.
ZSH = r"""
autoload -Uz compinit && compinit -u -D
zstyle ':completion:*' use-cache no
SETUP
compadd() {
  local -a found; local word
  for word; do
    [[ $word == -- || $word == - ]] && break
    [[ $word == -*[OAD]* ]] && { builtin compadd "$@"; return }
  done
  builtin compadd -O found "$@"; hits+=($found); builtin compadd "$@"
}
zle-line-init() {
  local line; local -aU hits
  while IFS= read -r line; do
    BUFFER=$line CURSOR=$#line hits=()
    zle list-choices
    print -r -- "$line"$'\t'"${hits[*]}" >>$UIW_ANSWERS
  done <$UIW_LINES
  BUFFER=exit
  zle accept-line
}
zle -N zle-line-init
"""


def prepare(bench):
    """A home directory, a program to complete, and a file and a folder that it may be given."""
    folder = f"{bench.tmp}/bin"
    os.mkdir(folder)
    with open(f"{folder}/{PROGRAM}", "w", encoding="ascii") as program:
        program.write("#!/bin/sh\n")
    os.chmod(f"{folder}/{PROGRAM}", 0o755)
    pathlib.Path(f"{bench.tmp}/{FILE}").touch()
    os.mkdir(f"{bench.tmp}/{FOLDER}")
    home = {name: bench.tmp for name in ("HOME", "ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    return {**home, "TERM": "dumb", "PATH": os.pathsep.join([folder, os.path.dirname(bench.uiw), os.environ["PATH"]])}


def options_of(bench):
    """Each long option of `uiw COMMAND --help`: (command, option, kind, choices, default). The kind of a value is FILE, DIR or
    another word, and empty where the option is a flag; choices are the words that the value may be."""
    for command in help_of([bench.uiw])[1]:
        for name, text in help_of([bench.uiw], command)[0].items():
            kind = re.match(r"\S*", text)[0].removeprefix("Excludes:")
            choices = re.fullmatch(r"TEXT:{(.*)}|([\w-]+(?:\|[\w-]+)+)", kind)
            default = re.search(r"\bdefault \w+", text)
            if name.startswith("--"):
                words = re.sub(r"[,|]", " ", choices[1] or choices[2]) if choices else ""
                yield command, name, kind, words, default[0] if default else ""


def lines_of_help(bench):
    """As LINES: all commands, options and values."""
    top, commands = help_of([bench.uiw])
    names = {"uiw": [name for name in top if name.startswith("--")]}
    lines = [("uiw ", " ".join(commands))]
    for command, name, kind, choices, _ in options_of(bench):
        names.setdefault(f"uiw {command}", []).append(name)
        value, offered = {"FILE": ("test-of-", f"{FILE} {FOLDER}"), "DIR": ("test-of-", FOLDER)}.get(kind, ("", choices))
        if kind:
            lines.append((f"uiw {command} {name} {value}", offered))
        if command == "run":
            lines.append((f"uiw run {name} {choices.split(' ')[0] or kind} uiwtest-p", PROGRAM))
    return lines + [(f"{command} --", " ".join(options)) for command, options in names.items()]


def judge(shell, text, lines):
    answers = dict(line.split("\t") for line in text.splitlines() if "\t" in line)
    faults = []
    for line, wanted in lines:
        check(line in answers, f"no answer for '{line}'; all is: {text[-500:]}")
        found = {word.split("=")[-1].rstrip("/") for word in answers[line].split()} - {"-h"}
        if line.endswith(" "):
            found = {word for word in found if not word.startswith("-")}
        missing, more = set(wanted.split()) - found, found - set(wanted.split())
        faults += [f"'{line}' is not completed by {' '.join(sorted(missing))}"] if missing else []
        faults += [f"'{line}' should not be completed by {' '.join(sorted(more))}"] if more else []
    check(not faults, f"tools/completion/uiw.{shell}: {'; '.join(faults)}")


def typed(bench, lines, end="\n"):
    path = f"{bench.tmp}/lines"
    with open(path, "w", encoding="ascii") as file:
        file.writelines(line + end for line, _ in lines)
    return path


@row("each file has all options of `uiw --help` with their values, and with their defaults where it describes them")
def files(bench):
    faults = []
    options = list(options_of(bench))
    for shell in ("bash", "zsh", "fish"):
        lines = (FILES / f"uiw.{shell}").read_text(encoding="ascii").splitlines()
        for command, name, _, choices, default in options:
            wanted = [choices, "" if shell == "bash" else default]
            rows = [line for line in lines if re.search(rf"(--|-l ){name[2:]}(?![\w-])", line)]
            if not any(all(text in row for text in wanted) for row in rows):
                faults.append(f"tools/completion/uiw.{shell}: `uiw {command}` needs {' '.join(filter(None, [name, *wanted]))}")
    check(not faults, "; ".join(faults))


def bash(bench, setup, lines):
    need_program("bash")
    env = prepare(bench)
    lines = lines + lines_of_help(bench)
    with open(typed(bench, lines), encoding="ascii") as stdin:
        judge("bash", bench.run(["bash", "--norc", "-c", setup + BASH], uiw=False, env=env, stdin=stdin).stdout, lines)


@row("bash with bash-completion: the installed file", setup=f"source {FILES}/uiw.bash")
@row("bash with bash-completion: the script that is printed", setup="source <(uiw completion bash)")
def bash_with_completion(bench, setup):
    if not os.path.exists(BASH_COMPLETION):
        raise Skip("bash-completion is not installed")
    bash(bench, f"source {BASH_COMPLETION}\n{setup}\n", LINES + PROGRAM_LINES)


@row("bash alone: the names of programs are completed, their arguments are left to readline")
def bash_alone(bench):
    bash(bench, "source <(uiw completion bash)\n", LINES)


@row("zsh: the installed file, a function of compinit", function=True)
@row("zsh: the script that is printed", function=False)
def zsh(bench, function):
    need_program("zsh")
    env = prepare(bench)
    answers = f"{bench.tmp}/answers"
    lines = LINES + PROGRAM_LINES + lines_of_help(bench)
    env.update(UIW_LINES=typed(bench, lines), UIW_ANSWERS=answers)
    script = ZSH.replace("SETUP", "" if function else "source <(uiw completion zsh)")
    if function:
        os.mkdir(f"{bench.tmp}/functions")
        shutil.copy(FILES / "uiw.zsh", f"{bench.tmp}/functions/_uiw")
        script = f"fpath=({bench.tmp}/functions $fpath)\n{script}"
    with open(f"{bench.tmp}/.zshrc", "w", encoding="ascii") as file:
        file.write(script)
    terminal = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    bench.run([sys.executable, "-c", terminal, "zsh", "-i", "-o", "no_global_rcs"], 60, uiw=False, env=env)
    check(os.path.exists(answers), "zsh has completed nothing")
    judge("zsh", pathlib.Path(answers).read_text(encoding="ascii"), lines)


@row("fish: the installed file", setup=f"source {FILES}/uiw.fish")
@row("fish: the script that is printed", setup="uiw completion fish | source")
def fish(bench, setup):
    need_program("fish")
    lines = LINES + PROGRAM_LINES + lines_of_help(bench)
    env = prepare(bench)
    words = ["fish", "--no-config", "-c", f"{setup}\n{FISH}", typed(bench, lines, "\0")]
    process = bench.run(words, 60, uiw=False, env=env)
    check(not process.stderr, f"fish complains: {process.stderr}")
    judge("fish", process.stdout, lines)


sys.exit(harness.main())
