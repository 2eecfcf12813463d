"""The parts of the writing path are given what they use. None of them reaches the others through the object that owns all."""

import ast
from pathlib import Path

import pytest

import handrail.runtime

RUNTIME = Path(handrail.runtime.__file__).parent
PARTS = (
    "approval",
    "audit_recovery",
    "claim_and_run",
    "confirmation",
    "envelopes",
    "execution",
    "ledger_lookup",
    "session_restore",
    "write_path",
)


def reaches_for_the_core(source: str) -> list[str]:
    """What of it names the core, also where only a type checker looks."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "handrail.runtime.core":
            found.append(ast.unparse(node))
        if isinstance(node, ast.Attribute) and node.attr in ("core", "_core"):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_writing_path_does_not_know_the_core(part):
    assert reaches_for_the_core((RUNTIME / f"{part}.py").read_text(encoding="utf-8")) == []


def test_a_part_that_reaches_through_a_session_is_found():
    assert reaches_for_the_core("session.core.pipeline.refuse(attempt)") == ["session.core"]


def other_gates_named(source: str) -> list[str]:
    """Where one gate of Handrail's own names another."""
    gates = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name.endswith("Gate")]
    names = {gate.name for gate in gates}
    return [
        f"{gate.name}: {node.id}"
        for gate in gates
        for node in ast.walk(gate)
        if isinstance(node, ast.Name) and node.id in names
    ]


def test_gates_do_not_know_each_other():
    source = (RUNTIME / "gates.py").read_text(encoding="utf-8")
    assert other_gates_named(source) == []
    assert other_gates_named(source + "\n\nclass NewGate:\n    loop = LoopGate()\n") == ["NewGate: LoopGate"]


def gates_named_by_text(source: str) -> list[str]:
    """Where a refusal names its gate by text, or the gate of one is compared with text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        is_refusal = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal"
        is_comparison = isinstance(node, ast.Compare) and ast.unparse(node.left).endswith(".gate")
        if is_refusal:
            texts = [one.value for one in node.args[:1] if isinstance(one, ast.Constant)]
        else:
            parts = [part for one in node.comparators for part in ast.walk(one)] if is_comparison else []
            texts = [part.value for part in parts if isinstance(part, ast.Constant)]
        found += [text for text in texts if isinstance(text, str)]
    return found


def test_the_gates_of_refusals_are_a_type_and_no_text():
    sources = {path.name: path.read_text(encoding="utf-8") for path in RUNTIME.glob("*.py")}
    assert {name: found for name, source in sources.items() if (found := gates_named_by_text(source))} == {}
    assert gates_named_by_text('Refusal("mode", kind, "No.")\nrefusal.gate in ("parse", "find")') == [
        "mode",
        "parse",
        "find",
    ]
