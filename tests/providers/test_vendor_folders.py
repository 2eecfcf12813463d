"""Vendors do not know each other, nothing below knows a vendor, and the documentation's tables are those of the list."""

import re
from pathlib import Path

import grimp
import pytest

from handrail import providers
from handrail.providers.catalogue import REGISTRATIONS, own_providers

FOLDER = Path(providers.__file__).parent
VENDORS = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph("handrail", cache_dir=None)


def modules_of(graph, vendor):
    package = f"handrail.providers.{vendor}"
    return {package, *graph.find_descendants(package)}


def test_every_vendor_is_registered():
    registered = {registration.partition(":")[0].rpartition(".")[2] for registration in REGISTRATIONS}
    # A file of this machine is a model, but its tools have a format of OpenAI's.
    assert set(VENDORS) == registered | {"local"}


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_vendor_imports_no_other(graph, vendor):
    others = {f"handrail.providers.{one}" for one in VENDORS} - {f"handrail.providers.{vendor}"}
    found = {
        f"{module} imports {imported}"
        for module in modules_of(graph, vendor)
        for imported in graph.find_modules_directly_imported_by(module)
        if any(imported == other or imported.startswith(f"{other}.") for other in others)
    }
    assert found == set()


def test_what_vendors_share_knows_no_vendor(graph):
    vendors = {module for vendor in VENDORS for module in modules_of(graph, vendor)}
    shared = {"handrail.providers", *graph.find_descendants("handrail.providers")} - vendors
    found = {
        f"{module} imports {imported}"
        for module in shared
        for imported in graph.find_modules_directly_imported_by(module) & vendors
    }
    assert found == set()


def test_the_table_of_models_in_the_documentation_is_that_of_the_list():
    rows = re.findall(
        r"^\| `([a-z-]+)` \| .*? \| `handrail\[(\w+)\]` \| (.*?) \| `(\w+)` \|$", table("providers.md"), re.M
    )
    assert [(scheme, extra, re.findall(r"`(\w+)`", keys), address) for scheme, extra, keys, address in rows] == [
        (one.schemes[0], one.client.extra, list(one.client.keys), one.client.address_variable)
        for one in own_providers().values()
        if one.client is not None and not one.client.is_live
    ]


def test_the_formats_in_the_documentation_are_those_of_the_list():
    sentence = re.search(r"in eight formats: (.*?)\.", table("providers.md"), re.S)
    assert sentence is not None
    assert re.findall(r"`([a-z-]+)`", sentence[1]) == list(own_providers())


def test_the_table_of_live_models_in_the_documentation_is_that_of_the_list():
    rows = re.findall(r"^\| `([a-z-]+)` \| .*? \| `handrail\[(\w+)\]` \| (.*?) \|$", table("live-providers.md"), re.M)
    assert [(scheme, extra, re.findall(r"`(\w+)`", keys)) for scheme, extra, keys in rows] == [
        (one.schemes[0], one.client.extra, list(one.client.keys))
        for one in own_providers().values()
        if one.client is not None and one.client.is_live
    ]


def table(page):
    return (DOCS / page).read_text("utf-8")
