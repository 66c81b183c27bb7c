# SPDX-License-Identifier: MIT
"""bash, zsh and fish complete uiw's command line: with the files that are installed, and with the script itself."""

import os
import pathlib
import shutil
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from support import harness
from support.harness import Skip, check, need_program, row

FILES = pathlib.Path(__file__).resolve().parents[3] / "tools" / "completion"
BASH_COMPLETION = "/usr/share/bash-completion/bash_completion"
PROGRAM = "uiwtest-program"

# A command line, and all that is offered for its last word. Words behind "=" stand without what is before it; for an
# empty word, zsh may offer options too.
LINES = [
    ("uiw ", "run devices doctor bench completion"),
    ("uiw be", "bench"),
    ("uiw do", "doctor"),
    ("uiw x", ""),
    ("uiw --", "--help --version"),
    ("uiw bench --", "--help --json --runs --duration --quick --rows --plot"),
    ("uiw bench --quick --du", "--duration"),
    ("uiw bench --runs ", ""),
    ("uiw bench --pl", "--plot"),
    ("uiw devices ", ""),
    ("uiw devices --j", "--json"),
    ("uiw completion ", "bash zsh fish"),
    ("uiw completion z", "zsh"),
    ("uiw completion zsh ", ""),
    ("uiw run --cr", "--crc"),
    ("uiw run --crc ", "auto on off"),
    ("uiw run --crc=o", "on off"),
    ("uiw run --crc on --tr", "--transport"),
    ("uiw run --transport r", "roce"),
    ("uiw run uiwtest-p", PROGRAM),
    ("uiw run --crc on uiwtest-p", PROGRAM),
    ("uiw run -- uiwtest-p", PROGRAM),
    ("uiw run uiwtest-program --cr", ""),
    ("uiw run uiwtest-program bench --qu", ""),
]
# What the program's own completion offers: that of uiw is one that is there, and other programs get files.
PROGRAM_LINES = [
    ("uiw run uiw be", "bench"),
    ("uiw run --crc on uiw bench --qu", "--quick"),
    ("uiw run -- uiw run --cr", "--crc"),
    ("uiw run --mpa-revision=2 uiwtest-program file-of-", "file-of-test"),
]

# Each prints, for each line of standard input, "LINE<tab>WORD WORD...".
BASH = r"""
words_of() { COMP_WORDS=() COMP_LINE=$1 COMP_POINT=${#1}
  local part; for part in ${1//=/ = }; do COMP_WORDS+=("$part"); done
  [[ $1 == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); }
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
    """A home directory, a program to complete, and the file that it may be given."""
    folder = f"{bench.tmp}/bin"
    os.mkdir(folder)
    with open(f"{folder}/{PROGRAM}", "w", encoding="ascii") as program:
        program.write("#!/bin/sh\n")
    os.chmod(f"{folder}/{PROGRAM}", 0o755)
    pathlib.Path(f"{bench.tmp}/file-of-test").touch()
    home = {name: bench.tmp for name in ("HOME", "ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    return {**home, "TERM": "dumb", "PATH": os.pathsep.join([folder, os.path.dirname(bench.uiw), os.environ["PATH"]])}


def judge(text, lines):
    answers = dict(line.split("\t") for line in text.splitlines() if "\t" in line)
    for line, wanted in lines:
        check(line in answers, f"no answer for '{line}'; all is: {text[-500:]}")
        found = {word.split("=")[-1] for word in answers[line].split()} - {"-h"}
        if line.endswith(" "):
            found = {word for word in found if not word.startswith("-")}
        check(found == set(wanted.split()), f"'{line}' is completed by {sorted(found)}, not by {wanted.split()}")


def typed(bench, lines, end="\n"):
    path = f"{bench.tmp}/lines"
    with open(path, "w", encoding="ascii") as file:
        file.writelines(line + end for line, _ in lines)
    return path


def bash(bench, setup, lines):
    need_program("bash")
    env = prepare(bench)
    with open(typed(bench, lines), encoding="ascii") as stdin:
        judge(bench.run(["bash", "--norc", "-c", setup + BASH], uiw=False, env=env, stdin=stdin).stdout, lines)


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
    env.update(UIW_LINES=typed(bench, LINES + PROGRAM_LINES), UIW_ANSWERS=answers)
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
    judge(pathlib.Path(answers).read_text(encoding="ascii"), LINES + PROGRAM_LINES)


@row("fish: the installed file", setup=f"source {FILES}/uiw.fish")
@row("fish: the script that is printed", setup="uiw completion fish | source")
def fish(bench, setup):
    need_program("fish")
    lines = LINES + PROGRAM_LINES
    env = prepare(bench)
    words = ["fish", "--no-config", "-c", f"{setup}\n{FISH}", typed(bench, lines, "\0")]
    process = bench.run(words, 60, uiw=False, env=env)
    check(not process.stderr, f"fish complains: {process.stderr}")
    judge(process.stdout, lines)


sys.exit(harness.main())
