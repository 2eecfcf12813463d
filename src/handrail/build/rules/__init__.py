"""The lint rules, one per file. A new rule is a new file here with a `RULE` in it; nothing else has to know.

Each check gets one tool and the catalogue of all, and yields the spots that it objects to. It stays silent when what it
needs could not be read: the rule whose business that is reports it.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from handrail.build.findings import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, sorted by name."""
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return tuple(sorted((module.RULE for module in modules), key=lambda rule: rule.name))
