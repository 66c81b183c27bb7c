# SPDX-License-Identifier: MIT
"""The workflows of continuous integration and the examples in contrib/: their YAML parses and has the parts that a runner
needs, their scripts are bash, and every file of this repository that they name is there.

usage: python3 tests/tree/workflows.py [SOURCE-DIRECTORY]

Exit status 77, which ctest takes for skipped, where Python's yaml module (python3-yaml) is not installed.
"""
import pathlib
import re
import subprocess
import sys

try:
    import yaml
except ImportError:
    print("skipped: there is no Python module yaml; install python3-yaml")
    sys.exit(77)

# Actions of GitHub by their major version: other owners' code would have to be checked first.
ACTION = re.compile(r"actions/[a-z-]+@v[0-9]+")
EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
MINUTES = re.compile(r"[0-9]+")
SETTING = re.compile(r"\bUIW_[A-Z_]+")
INSTRUCTION = re.compile(r"FROM \S+$|(COPY|RUN|ENV) ")


def named_files(root, text):
    """The words of a text that are paths into a folder of the repository."""
    folders = {path.name for path in root.iterdir() if path.is_dir() and path.name != ".git"}
    for word in re.split(r"[\s;&|()'\"=`]+", text):
        word = word.removeprefix("./").rstrip(".,:")
        if "/" in word and word.split("/")[0] in folders and not re.search(r"[*$<>{]", word):
            yield word


def bash_fault(script):
    result = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    return result.stderr.strip() if result.returncode != 0 else None


def step_faults(step):
    if not isinstance(step, dict) or ("uses" in step) == ("run" in step):
        yield f"a step has to have either `uses` or `run`: {step}"
        return
    if "uses" in step and not ACTION.fullmatch(step["uses"]):
        yield f"is no action of GitHub by its major version: {step['uses']}"
    if "run" in step:
        fault = bash_fault(EXPRESSION.sub("expression", step["run"]))
        if fault:
            yield f"is no bash: {fault}"


def job_faults(name, job, jobs):
    if not isinstance(job, dict) or not job.get("runs-on") or not job.get("steps"):
        yield f"job {name} has no runs-on or no steps"
        return
    needed = job.get("needs", [])
    for other in [needed] if isinstance(needed, str) else needed:
        if other not in jobs:
            yield f"job {name} needs {other}, which is not there"
    if not MINUTES.fullmatch(str(job.get("timeout-minutes", ""))):
        yield f"job {name} has no timeout-minutes, so what hangs takes six hours"
    known = [step.get("id") for step in job["steps"] if isinstance(step, dict)]
    for used in sorted(set(re.findall(r"steps\.([\w-]+)\.", str(job)))):
        if used not in known:
            yield f"job {name} uses the step {used}, which is not there"
    for step in job["steps"]:
        yield from (f"job {name}: {fault}" for fault in step_faults(step))


def workflow_faults(text):
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        yield f"is no YAML: {error}"
        return
    jobs = content.get("jobs") if isinstance(content, dict) else None
    # YAML 1.1 reads the key `on` as true.
    if not isinstance(jobs, dict) or not (content.get("on") or content.get(True)):
        yield "has no jobs, or no `on` that says when they run"
        return
    for name, job in jobs.items():
        yield from job_faults(name, job, jobs)


def container_faults(text):
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    if not lines or not lines[0].startswith("FROM "):
        yield "does not begin with FROM"
    for line in lines:
        if not INSTRUCTION.match(line):
            yield f"is no instruction: {line}"
        elif line.startswith("RUN "):
            fault = bash_fault(line.removeprefix("RUN "))
            if fault:
                yield f"is no bash: {fault}"
    # Before the library is installed, the loader would complain for every program of the build.
    if lines and not lines[-1].startswith("ENV LD_PRELOAD="):
        yield "does not end with ENV LD_PRELOAD"


# Each pattern has to find a file.
CHECKS = {
    ".github/workflows/*.yml": workflow_faults,
    "contrib/github-actions/*.yml": workflow_faults,
    "contrib/container/Dockerfile": container_faults,
}


def faults(root):
    settings = set(SETTING.findall((root / "docs/man/uiw.7.rst").read_text()))
    for pattern, check in CHECKS.items():
        paths = sorted(root.glob(pattern))
        if not paths:
            yield f"{pattern}: there is no such file"
        for path in paths:
            text = path.read_text()
            place = path.relative_to(root)
            yield from (f"{place}: {fault}" for fault in check(text))
            for setting in sorted(set(SETTING.findall(text)) - settings):
                yield f"{place}: {setting} is no setting, so uiw would offer no device"
            for file in named_files(root, EXPRESSION.sub("expression", text)):
                if not (root / file).exists():
                    yield f"{place}: names {file}, which is not there"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    found = list(faults(root))
    for fault in found:
        print(fault)
    print(f"{len(found)} faults" if found else "the workflows and examples are as they should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
