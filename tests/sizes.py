# SPDX-License-Identifier: MIT
"""The limits that keep the tree readable: lines of a file, lines of a function, functions and data members of a class,
source files in a folder.

What it knows of C++ is how this tree is formatted (.clang-format): a body's brace stands behind a space, an initialiser's
does not.

layers.py reports what it finds.
"""
import ast
import pathlib
import re

FOLDERS = ["mpa", "ddp", "rdmap", "provider", "kernel-abi", "tools", "tests"]
FILE_LINES = 500
FUNCTION_LINES = 60
CLASS_FUNCTIONS = 40
CLASS_MEMBERS = {"Qp": 25, "Stream": 30}
FOLDER_FILES = 20
COUNTED = {".cc", ".h", ".c", ".py"}

TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
SCOPE = re.compile(r"^(?:inline\s+)?namespace\b|^extern\s*$")
CLASS = re.compile(r"(?:^|\s|>)(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*)?(?:[A-Z_]+\s+)?(\w+)\s*(?:final\s*)?(?::[^:].*)?$", re.S)
NOT_A_MEMBER = ("using", "friend", "static_assert", "typedef", "enum", "class ", "struct ", "static constexpr")


def plain(text):
    """The text with comments, strings and preprocessor lines as blanks, so that lines and columns stay."""
    return TOKENS.sub(lambda found: re.sub(r"[^\n]", " ", found.group(0)), text)


class Block:
    def __init__(self, kind, head, start, outer):
        self.kind, self.head, self.start, self.outer = kind, " ".join(head.split()), start, outer
        self.flat = []  # what stands directly in it


def kind_of(head, outer):
    if outer.kind not in ("scope", "class"):
        return "other"
    if SCOPE.search(head):
        return "scope"
    if CLASS.search(head) and "enum" not in head:
        return "class"
    return "function" if "(" in head and not re.search(r"=\s*$", head) else "other"


def blocks(text):
    """Each brace block with its kind, end and what stands directly in it."""
    current = Block("scope", "", 0, None)
    last = position = 0
    while position < len(text):
        c = text[position]
        if c == "{":
            head = text[last:position].strip()
            initialiser = position > 0 and (text[position - 1].isalnum() or text[position - 1] in "_>")
            current = Block("other" if initialiser else kind_of(head, current), head, position, current)
            if not initialiser:
                last = position + 1
            current.initialiser = initialiser
        elif c == "}":
            if current.outer is None:
                raise ValueError("more braces close than open")
            yield current, position
            if not current.initialiser:
                last = position + 1
                current.outer.flat.append(";")
            current = current.outer
        else:
            if c == ";":
                last = position + 1
            current.flat.append(c)
        position += 1


def members_and_functions(flat):
    members = functions = 0
    for statement in "".join(flat).split(";"):
        statement = re.sub(r"\b(public|private|protected)\s*:", "", statement).strip()
        if not statement or statement.startswith(NOT_A_MEMBER):
            continue
        before = statement.split("=")[0] if "operator" not in statement else statement
        nothing = re.sub(r"alignas\([^)]*\)", "", before)
        for _ in range(3):
            nothing = re.sub(r"<[^<>]*>", "", nothing)
        if "(" in nothing:
            functions += 1
        else:
            members += 1 + nothing.count(",")
    return members, functions


def python_faults(name, tree):
    """Functions inside a function have lines of their own."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        inner = [other for other in ast.iter_child_nodes(node) if isinstance(other, ast.FunctionDef)]
        lines = node.end_lineno - node.lineno + 1 - sum(other.end_lineno - other.lineno + 1 for other in inner)
        if lines > FUNCTION_LINES:
            yield f"{name}:{node.lineno}: a function of {lines} lines, more than {FUNCTION_LINES}: {node.name}"


def source_faults(name, text):
    if text.count("\n") > FILE_LINES:
        yield f"{name}: {text.count(chr(10))} lines, more than {FILE_LINES}"
    if name.suffix == ".py":
        yield from python_faults(name, ast.parse(text))
        return
    text = plain(text)
    for block, end in blocks(text):
        place = f"{name}:{text.count(chr(10), 0, block.start) + 1}"
        lines = text.count("\n", block.start, end) + 1
        if block.kind == "function" and lines > FUNCTION_LINES:
            yield f"{place}: a function of {lines} lines, more than {FUNCTION_LINES}: {block.head[-70:]}"
        if block.kind != "class":
            continue
        title = CLASS.search(block.head).group(1)
        members, functions = members_and_functions(block.flat)
        if functions > CLASS_FUNCTIONS:
            yield f"{place}: {title} has {functions} functions, more than {CLASS_FUNCTIONS}"
        if members > CLASS_MEMBERS.get(title, members):
            yield f"{place}: {title} has {members} data members, more than {CLASS_MEMBERS[title]}"


def size_faults(root):
    for folder in FOLDERS:
        here = {}
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in COUNTED or "__pycache__" in path.parts:
                continue
            name = path.relative_to(root)
            here[name.parent] = here.get(name.parent, 0) + 1
            yield from source_faults(name, path.read_text())
        for name, count in here.items():
            if count > FOLDER_FILES:
                yield f"{name}: {count} source files, more than {FOLDER_FILES}"
