"""Count the lines of code of each package and of the tests, and their packed assignments.

A line of code is a line with anything but comments and docstrings; nothing is exempt. A packed
assignment assigns several independent values in one statement, as in `a, b = 1, 2`.

Usage: python tools/count_lines.py
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SILENT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def lines_of_code(code: str) -> int:
    """Return the number of lines that contain code."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    lines = {
        line
        for token in tokens
        if token.type not in SILENT
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)


def packed_assignments(code: str) -> int:
    """Return the number of assignments of a written-out tuple to a tuple of names."""
    return sum(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        for node in ast.walk(ast.parse(code))
    )


def count(folder: Path) -> tuple[Counter[str], int]:
    """Return the lines of code of each part of a folder, and all its packed assignments."""
    lines: Counter[str] = Counter()
    packed = 0
    for path in sorted(folder.rglob("*.py")):
        code = path.read_text()
        lines[path.relative_to(folder).parts[0]] += lines_of_code(code)
        packed += packed_assignments(code)
    return lines, packed


if __name__ == "__main__":
    for name in ("src/attnconv", "src/companion", "tests"):
        lines, packed = count(ROOT / name)
        total = lines.total()
        parts = ", ".join(f"{part} {number}" for part, number in lines.most_common())
        print(f"{name}: {total} lines of code, {1000 * packed / total:.1f} packed per 1,000")
        print(f"  {parts}")
