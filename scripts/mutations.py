"""Make mutants of one module: copies of its source with one small fault each, as a slip of the hand would put it in.

The faults come from cosmic-ray's operators, chosen so that none is another's double, and from a few of our own for SQL, in
which much of the ledger is written. Annotations are left alone: nothing reads them while the program runs.
"""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import parso
from cosmic_ray.operators.provider import OperatorProvider

_CHOSEN = re.compile(
    r"AddNot|Replace(TrueWithFalse|FalseWithTrue|AndWithOr|OrWithAnd|BreakWithContinue|ContinueWithBreak)"
    r"|ExceptionReplacer|NumberReplacer|RemoveDecorator|ZeroIterationForLoop|ReplaceUnaryOperator_Delete_(Not|USub)"
    # One other operator each; the other nine would be noticed by the same tests.
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Add|Div_Mul|FloorDiv_Mul|Mod_Add|BitOr_BitAnd|BitAnd_BitOr)"
    # The opposite, and the neighbour that differs only where both sides are equal.
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt)"
)
_SQL_WORDS = re.compile(r"\b(SELECT|UPDATE|INSERT|DELETE|WHERE|VALUES|ORDER BY)\b")
_SQL = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\bAND\b", "OR"),
        (r"\bOR\b", "AND"),
        (r"(?<!NOT )\bEXISTS\b", "NOT EXISTS"),
        (r"\bNOT EXISTS\b", "EXISTS"),
        (r"\bNOT IN\b", "IN"),
        (r"\bIS NULL\b", "IS NOT NULL"),
        (r"\bIS NOT NULL\b", "IS NULL"),
        (r" < ", " <= "),
        (r" <= ", " < "),
        (r" > ", " >= "),
        (r" >= ", " > "),
        (r" <> ", " = "),
        (r" DESC\b", ""),
        (r"\bIN \('(\w+)', '(\w+)'\)", r"IN ('\1')"),
        (r"\bIN \('(\w+)', '(\w+)'\)", r"IN ('\2')"),
        (r" \+ 1\b", ""),
    )
]
_SQL_CONDITION = re.compile(r" = (?=[?:'\w])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault: where it is, the lines before and after, and the whole source that has it."""

    name: str
    """Function and lines; what tells it from all other mutants of its module, also when the lines move."""
    function: str
    """Its qualified name; or that of the module's constant; empty elsewhere."""
    before: str
    after: str
    source: str
    line: int
    """The first line that it changes."""


def mutants_of(source: str) -> list[Mutant]:
    """Every mutant of this source, in the order of its lines."""
    functions, constants = functions_of(source), _constants_of(source)
    seen: set[str] = {source}
    found: list[tuple[int, str, str, str]] = []
    for changed in (*_by_operators(source), *_by_sql(source)):
        if changed not in seen and _compiles(changed):
            seen.add(changed)
            found.append((*_difference(source, changed), changed))
    found.sort(key=lambda each: each[0])
    mutants, names = list[Mutant](), dict[str, int]()
    for line, before, after, changed in found:
        function = function_at(functions, line) or function_at(constants, line)
        name = f"{function or 'module'}: {before} -> {after}"
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name += f" ({names[name]})"
        mutants.append(Mutant(name=name, function=function, before=before, after=after, source=changed, line=line))
    return mutants


def functions_of(source: str) -> list[tuple[int, int, str]]:
    """First line (of decorators, as code objects have it), last line and qualified name of each function, outermost first."""
    found: list[tuple[int, int, str]] = []

    def look(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{within}.{child.name}" if within else child.name
                if not isinstance(child, ast.ClassDef):
                    first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                    found.append((first, child.end_lineno or first, name))
                look(child, name)
            else:
                look(child, within)

    look(ast.parse(source), "")
    return found


def _constants_of(source: str) -> list[tuple[int, int, str]]:
    return [
        (node.lineno, node.end_lineno or node.lineno, node.targets[0].id)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    ]


def function_at(functions: list[tuple[int, int, str]], line: int) -> str:
    """The innermost function that has this line; empty if none has."""
    around = [name for first, last, name in functions if first <= line <= last]
    return around[-1] if around else ""


def _by_operators(source: str) -> Iterator[str]:
    provider = OperatorProvider()
    original = parso.parse(source)
    nodes = list(_nodes(original))
    kept = pickle.dumps(original)
    for name in provider:
        if not _CHOSEN.fullmatch(name):
            continue
        operator = provider[name]()
        places = [
            (place, index)
            for place, node in enumerate(nodes)
            for index, _ in enumerate(operator.mutation_positions(node))
            if not (_is_annotation(node) or (name == "AddNot" and _is_negated_elsewhere(node)))
            # The operator does not understand dotted names.
            and not (name == "ExceptionReplacer" and "." in node.get_code())
        ]
        for place, index in places:
            # The operators change the tree that they are given; a copy takes a quarter of the time of parsing.
            tree = pickle.loads(kept)  # noqa: S301 - ours, of a moment ago
            node = next(each for at, each in enumerate(_nodes(tree)) if at == place)
            changed = operator.mutate(node, index)
            if changed is not node:
                siblings = node.parent.children
                at = siblings.index(node)
                siblings[at : at + 1] = [] if changed is None else [changed]
            yield tree.get_code()


def _by_sql(source: str) -> Iterator[str]:
    for node in _nodes(parso.parse(source)):
        text = getattr(node, "value", "")
        if node.type not in ("string", "fstring_string") or not _SQL_WORDS.search(text):
            continue
        start = _offset(source, node.start_pos)
        condition = text.find("WHERE")
        edits = [
            (match, match.expand(replacement)) for pattern, replacement in _SQL for match in pattern.finditer(text)
        ]
        if condition >= 0:
            edits += [(match, " <> ") for match in _SQL_CONDITION.finditer(text, condition)]
        for match, replacement in edits:
            yield source[: start + match.start()] + replacement + source[start + match.end() :]


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in getattr(node, "children", ()):
        yield from _nodes(child)


def _is_annotation(node: Any) -> bool:
    while node.parent is not None:
        parent = node.parent
        if parent.type in ("annassign", "tfpdef") and parent.children.index(node) == (
            1 if parent.type == "annassign" else 2
        ):
            return True
        if parent.type == "funcdef" and parent.annotation is node:
            return True
        if parent.type == "param" and parent.annotation is node:
            return True
        node = parent
    return False


def _is_negated_elsewhere(node: Any) -> bool:
    """A condition that is one comparison or one `not`, which other operators turn round; or that of imports for types."""
    condition = node.children[2 if node.type == "test" else 1]
    return condition.type in ("comparison", "not_test") or condition.get_code().strip() == "TYPE_CHECKING"


def _offset(source: str, position: tuple[int, int]) -> int:
    line, column = position
    return sum(len(each) for each in source.splitlines(keepends=True)[: line - 1]) + column


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _difference(source: str, changed: str) -> tuple[int, str, str]:
    """The first line that differs, and the lines that do, before and after."""
    old, new = source.splitlines(), changed.splitlines()
    first = next(place for place, lines in enumerate(zip(old, new, strict=False)) if lines[0] != lines[1])
    same = zip(reversed(old[first:]), reversed(new[first:]), strict=False)
    last = next((place for place, lines in enumerate(same) if lines[0] != lines[1]), min(len(old), len(new)) - first)
    before = " ".join(line.strip() for line in old[first : len(old) - last])
    # The operators put a space before what they put in.
    after = " ".join(re.sub(r"([(\[]) ", r"\1", " ".join(line.split())) for line in new[first : len(new) - last])
    return first + 1, before, after
