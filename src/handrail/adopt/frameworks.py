"""The one place where a framework is imported: when its tools are asked for, and with a sentence if it is not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from handrail.contract.errors import UsageError


def need(module: str, package: str) -> Any:
    """A framework's module; `UsageError` that says what to install if there is none."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != top:
            raise UsageError(f'"{package}" is installed, but cannot be imported: it needs "{error.name}".') from None
        raise UsageError(f'This needs the package "{package}"; install it with `pip install {package}`.') from None
