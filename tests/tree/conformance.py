# SPDX-License-Identifier: MIT
"""The conformance tables of docs/conformance hold: every occurrence of MUST and SHALL has its row, every function and
test that a row names exists. docs/conformance/README.md says what a row looks like. So do the tests that docs/security.md
names: each attack has one, or says why there is none.

usage: python3 tests/tree/conformance.py [SOURCE-DIRECTORY]
       python3 tests/tree/conformance.py --count TEXT=FILE...     prints sections.tsv anew from the texts
"""
import collections
import difflib
import functools
import pathlib
import re
import subprocess
import sys

# The words that are counted, by text. A table is docs/conformance/TEXT.md.
WORDS = {"rfc5040": "MUST|SHALL", "rfc5041": "MUST|SHALL", "rfc5044": "MUST|SHALL",
         "rfc6581": "MUST|SHALL", "rfc7306": "MUST|SHALL|SHOULD|MAY|OPTIONAL", "verbs": "MUST|SHALL"}

HEADER = ["Section", "n", "Requirement", "Carried out by", "Tests"]
REASON = re.compile(r"not applicable: \S")
SEE = re.compile(r"see ((?:[0-9A-Z]+(?:\.[0-9]+)*(?:, | and )?)+)$")
PAGE_BREAK = re.compile(r"\[Page \d+\]$|^RFC \d+ ")  # the last line of a page, and the first of the next one
Row = collections.namedtuple("Row", "line section count requirement carried tests")


# ---- the texts -------------------------------------------------------------------------------------------------


def headings(lines):
    """(section, index of its line) for each entry of the table of contents, and where the first one begins."""
    start = next(number for number, line in enumerate(lines) if line.strip() == "Table of Contents") + 1
    entries, pending, end = [], None, start
    for number in range(start, len(lines)):
        line = lines[number].strip()
        leader = re.search(r" ?\.+ ?\d+$", line)
        entry = re.match(r"(?:Appendix )?((?:\d+|[A-Z])(?:\.\d+)*)\.? +(\S.*)$", line)
        if entry and leader:
            entries.append((entry[1], re.sub(r" ?\.+ ?\d+$", "", entry[2])))
            pending, end = None, number
        elif pending and leader:
            entries.append(pending)
            pending, end = None, number
        elif entry and number + 1 < len(lines) and re.search(r"\.{2,} ?\d+$", lines[number + 1]):
            pending = (entry[1], entry[2])
        elif line and entries and not PAGE_BREAK.search(line):
            break
    found, at = [], end + 1
    for section, title in entries:
        begins = re.compile(rf"\s*(?:Appendix )?{re.escape(section)}\.? +{re.escape(title[:14].strip())}", re.I)
        place = next((number for number in range(at, len(lines)) if begins.match(lines[number])), None)
        if place is not None:  # a section that stands before the table of contents has nothing to count
            found.append((section, place))
            at = place + 1
    return found


def count(text, path):
    """(section, occurrences) of the sections that have any."""
    lines = path.read_text(encoding="latin-1").split("\n")
    word = re.compile(rf"\b(?:{WORDS[text]})\b")
    places = headings(lines)
    ends = [place for _, place in places[1:]] + [len(lines)]
    for (section, place), end in zip(places, ends):
        occurrences = len(word.findall("\n".join(lines[place:end])))
        if occurrences:
            yield section, occurrences
    if word.search("\n".join(lines[:places[0][1]])):
        sys.exit(f"{path}: an occurrence before the first section")


def print_count(arguments):
    print("# SPDX-License-Identifier: MIT")
    print("# Made by tests/tree/conformance.py --count; README.md has the rule. Text, section, occurrences.")
    for argument in arguments:
        text, _, path = argument.partition("=")
        for section, occurrences in count(text, pathlib.Path(path)):
            print(text, section, occurrences, sep="\t")
    return 0


# ---- what is named ---------------------------------------------------------------------------------------------

_NOT_CODE = re.compile(r"""(?P<number>\b\d[\w']*)|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.S)
_AFTER = re.compile(r"\s*(?:\b(?:const|noexcept|override|final)\b\s*|\bUIW_\w+(?:\([^()]*\))?\s*|&&?\s*|->\s*[\w:<>&*,\s]+?)*"
                    r"(?:(?P<body>\{)|(?P<initializers>:)(?!:)|=\s*default\b)")


@functools.cache
def code_of(path):
    """The C++ of a file without comments and the insides of strings."""

    def blank(match):
        if match["number"]:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0]) if match[0][0] == "/" else '""'

    return _NOT_CODE.sub(blank, path.read_text())


def closing(code, at, pair):
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(code)):
        if code[place] == pair[0]:
            depth += 1
        elif code[place] == pair[1]:
            depth -= 1
            if depth == 0:
                return place + 1
    return len(code)


def definition_in(code, name, constructor):
    """Whether `name` is defined: a parameter list and a body, not a call and not a declaration."""
    for match in re.finditer(rf"(?<![\w~.>:]){re.escape(name)}\s*(?=\()", code):
        after = _AFTER.match(code, closing(code, match.end(), "()"))
        if after and (constructor or not after["initializers"]):
            return True
    return False


def is_defined(path, name):
    code = code_of(path)
    owner, _, leaf = name.rpartition("::")
    constructor = leaf == owner.rpartition("::")[2]
    if definition_in(code, name, constructor):
        return True
    if not owner:
        return False
    for match in re.finditer(rf"\b(?:class|struct)\s+(?:\w+\s+)*?{re.escape(owner)}\b[^;{{(]*(?=\{{)", code):
        body = code[match.end():closing(code, match.end(), "{}")]
        if definition_in(body, leaf, constructor):
            return True
    return False


def functions_of(path):
    """Names that could be meant, for a hint."""
    return sorted(set(re.findall(r"\b(?:\w+::)*~?\w+(?=\s*\()", code_of(path))))


_CASE = re.compile(r'\bTEST_CASE(?:_METHOD)?\s*\(\s*(?:\w+\s*,\s*)?((?:"(?:\\.|[^"\\])*"\s*)+)')
_LITERAL = re.compile(r'"((?:\\.|[^"\\])*)"')


def joined(literals):
    return "".join(re.sub(r"\\(.)", r"\1", part) for part in _LITERAL.findall(literals))


@functools.cache
def catch_cases(path):
    """Name of each test case -> its sections."""
    text = path.read_text()
    found = list(_CASE.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {joined(match[1]): {joined(section) for section in
                               re.findall(r'\bSECTION\s*\(\s*((?:"(?:\\.|[^"\\])*"\s*)+)', text[match.end():end])}
            for match, end in zip(found, ends)}


@functools.cache
def row_titles(path):
    """What a Python test says its rows are. A row that is known not to pass is no test."""
    run = subprocess.run([sys.executable, "-B", str(path), "--list"], capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip().splitlines()[-1] if run.stderr.strip() else "fails")
    return {line for line in run.stdout.splitlines() if " (known: " not in line}


@functools.cache
def named_cases(path):
    """The cases of a program of the tests, which tests/apps runs by name: cases["name"], or the begin of a row."""
    text = path.read_text()
    return set(re.findall(r'\bcases\["(\w+)"\]', text)) | set(re.findall(r'^\s*\{"(\w+)",(?:$| \w+\},)', text, re.M))


def nearest(name, names):
    close = difflib.get_close_matches(name, names, 1, 0.5)
    return f'; the nearest is "{close[0]}"' if close else ""


def function_fault(root, reference):
    file, separator, name = reference.partition(": ")
    path = root / file
    if not separator or not re.fullmatch(r"(?:\w+::)*~?\w+", name):
        return f"`{reference}` is not `file: function`"
    if file.startswith("tests/"):
        return f"`{reference}`: a test carries nothing out; name what it tests"
    if not path.is_file():
        return f"{file} does not exist; name the file that has {name}()"
    if not is_defined(path, name):
        return f"{file} does not define {name}(){nearest(name, functions_of(path))}; name the function that does it"
    return None


def test_fault(root, reference):
    found = re.fullmatch(r'(tests/\S+): "(.+?)"(?: / "(.+)")?', reference)
    if not found:
        return f'`{reference}` is not `tests/file: "title"`'
    file, title, section = found.groups()
    path = root / file
    if not path.is_file():
        return f"{file} does not exist; name the file that has this test"
    if path.suffix == ".py":
        try:
            known = row_titles(path)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return f"{file} --list: {error}"
    else:
        known = catch_cases(path) or named_cases(path)
    if title not in known:
        return f'{file} has no test "{title}"{nearest(title, known)}'
    if section is not None and section not in (known[title] if isinstance(known, dict) else ()):
        sections = known[title] if isinstance(known, dict) else ()
        return f'{file}: "{title}" has no section "{section}"{nearest(section, sections)}'
    return None


# ---- the tables ------------------------------------------------------------------------------------------------


def read_sections(path):
    """text -> section -> occurrences."""
    sections = collections.defaultdict(dict)
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            text, section, occurrences = line.split("\t")
            sections[text][section] = int(occurrences)
    return sections


def read_table(path):
    """The rows of a table, and complaints about lines that are none."""
    rows, faults = [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells == HEADER or all(re.fullmatch(":?-+:?", cell) for cell in cells):
            continue
        if len(cells) != len(HEADER):
            faults.append((number, f"{len(cells)} cells; a row has {len(HEADER)}: {', '.join(HEADER)}"))
        elif not cells[1].isdigit() or int(cells[1]) == 0:
            faults.append((number, f"'{cells[1]}' is no number of occurrences"))
        else:
            rows.append(Row(number, cells[0], int(cells[1]), *cells[2:]))
    return rows, faults


def row_faults(root, row, sections):
    if not row.requirement:
        yield "no requirement; say it in a few words"
    see = SEE.match(row.carried)
    if REASON.match(row.carried) or see:
        if row.tests != "-":
            yield "a reason needs no test; put - there"
        for section in re.split(", | and ", see[1]) if see else ():
            if section not in sections:
                yield f"there is nothing to see in section {section}"
        return
    for cell, fault_of, none in (
            (row.carried, function_fault,
             "neither a function nor a reason; name `file: function` or say 'not applicable: why'"),
            (row.tests, test_fault, 'no test; name `tests/file: "title"` of one that fails without it')):
        references = re.findall(r"`([^`]+)`", cell)
        if not references:
            yield none
        yield from filter(None, (fault_of(root, reference) for reference in references))


def table_faults(root, text, sections):
    """(line, fault), and at the end a line for the summary."""
    path = root / "docs" / "conformance" / f"{text}.md"
    rows, faults = read_table(path) if path.is_file() else ([], [(1, "the table is missing")])
    covered, lines = collections.Counter(), {}
    for row in rows:
        if row.section not in sections:
            faults.append((row.line, f"section {row.section} has no occurrence in sections.tsv; correct the section"))
            continue
        covered[row.section] += row.count
        lines[row.section] = row.line
        faults += [(row.line, fault) for fault in row_faults(root, row, sections)]
    for section, occurrences in sections.items():
        if covered[section] == occurrences:
            continue
        line = lines.get(section, len(path.read_text().splitlines()) if path.is_file() else 1)
        if covered[section] > occurrences:
            faults.append((line, f"section {section} has {occurrences} occurrences, its rows say {covered[section]}; "
                                 "take the surplus away"))
        else:
            faults.append((line, f"section {section} has {occurrences} occurrences, its rows say {covered[section]}; "
                                 "add what is missing"))
    summary = f"{text}: {sum(covered.values())} of {sum(sections.values())} occurrences in {len(rows)} rows"
    return sorted(faults), summary


# ---- the attacks -----------------------------------------------------------------------------------------------

ATTACKS = "docs/security.md"
_TEST = re.compile(r'`(tests/[\w./]+: "[^`]*)`')


def attack_faults(root):
    """(line, fault), and at the end a line for the summary."""
    text = (root / ATTACKS).read_text()
    begins = text.index("\n## The attacks of RFC 5042")
    faults, named, attacks = [], 0, 0
    # A heading, or an entry of a list that has a section's number; what stands under it goes to the next one.
    starts = [match.start() for match in re.finditer(r"^(?:### |\* \*\*\d)", text[begins:], re.M)]
    for start, end in zip(starts, [*starts[1:], len(text) - begins]):
        part = text[begins + start:begins + end]
        line = text.count("\n", 0, begins + start) + 1
        tests = _TEST.findall(part)
        heading = part.startswith("### ") and re.match(r"### [^\n]*\n\n\* \*\*\d", part + text[begins + end:][:5])
        if not tests and "No test: " not in part and not heading:
            faults.append((line, "names no test, and does not say 'No test: ' and why"))
        faults += [(line, fault) for fault in filter(None, (test_fault(root, reference) for reference in tests))]
        named, attacks = named + len(tests), attacks + (0 if heading else 1)
    return faults, f"security: {named} tests for {attacks} attacks"


def main():
    if sys.argv[1:2] == ["--count"]:
        return print_count(sys.argv[2:])
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    sections = read_sections(root / "docs" / "conformance" / "sections.tsv")
    count_of_faults = 0
    for text in WORDS:
        faults, summary = table_faults(root, text, sections[text])
        for line, fault in faults:
            print(f"docs/conformance/{text}.md:{line}: {fault}")
        print(summary)
        count_of_faults += len(faults)
    faults, summary = attack_faults(root)
    for line, fault in faults:
        print(f"{ATTACKS}:{line}: {fault}")
    print(summary)
    count_of_faults += len(faults)
    print(f"{count_of_faults} faults" if count_of_faults else "the tables are as they should be")
    return 1 if count_of_faults else 0


if __name__ == "__main__":
    sys.exit(main())
