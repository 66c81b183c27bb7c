# SPDX-License-Identifier: MIT
"""Alarms for what has probably become two things: lines of a file, lines of a function.

What it knows of C++ is how this tree is formatted (.clang-format): a body's brace stands behind a space, an initialiser's
does not.

layers.py reports what it finds.
"""
import ast
import pathlib
import re

FOLDERS = ["base", "mpa", "ddp", "rdmap", "provider", "kernel-abi", "tools", "tests"]
FILE_LINES = 800
FUNCTION_LINES = 80
COUNTED = {".cc", ".h", ".c", ".py"}

TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
SCOPE = re.compile(r"^(?:inline\s+)?namespace\b|^extern\s*$")
CLASS = re.compile(r"(?:^|\s|>)(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*)?(?:[A-Z_]+\s+)?(\w+)\s*(?:final\s*)?(?::[^:].*)?$", re.S)


def plain(text):
    """The text with comments, strings and preprocessor lines as blanks, so that lines and columns stay."""
    return TOKENS.sub(lambda found: re.sub(r"[^\n]", " ", found.group(0)), text)


class Block:
    def __init__(self, kind, head, start, outer):
        self.kind, self.head, self.start, self.outer = kind, " ".join(head.split()), start, outer


def kind_of(head, outer):
    if outer.kind not in ("scope", "class"):
        return "other"
    if SCOPE.search(head):
        return "scope"
    if CLASS.search(head) and "enum" not in head:
        return "class"
    return "function" if "(" in head and not re.search(r"=\s*$", head) else "other"


def blocks(text):
    """Each brace block with its kind and end."""
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
            current = current.outer
        elif c == ";":
            last = position + 1
        position += 1


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


def size_faults(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in COUNTED and "__pycache__" not in path.parts:
                yield from source_faults(path.relative_to(root), path.read_text())
