"""What a model's client needs before it can be opened: packages of the right version, a key, an address.

Nothing is imported to find out, and nobody is asked.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from urllib.parse import SplitResult, urlsplit

from handrail.contract.errors import install_command, missing_extra
from handrail.providers.provider import ModelClient


def missing_packages(subject: str, client: ModelClient) -> str | None:
    """Which package has to be installed before `subject` can be used, in a sentence; None if all are there."""
    if all(map(is_installed, client.packages)):
        return None
    if client.extra:
        return str(missing_extra(subject, client.extra))
    return f'{subject} needs the package "{client.distribution}"; run `pip install {client.distribution}`.'


def wrong_version(subject: str, client: ModelClient) -> str | None:
    """Which version of the SDK `subject` needs and which is installed, if that is another; None if it fits."""
    if not client.distribution:
        return None
    try:
        found = version(client.distribution)
    except PackageNotFoundError:  # not installed as a package: there is no saying which one it is
        return None
    first, beyond = client.versions
    if _numbers(found) >= _numbers(first) and (beyond is None or _numbers(found) < _numbers(beyond)):
        return None
    wanted = f"{client.distribution} {first} or later" + (f" but before {beyond}" if beyond else "")
    command = install_command(f"handrail[{client.extra}]") if client.extra else f'`pip install "{client.distribution}"`'
    return f"{subject} needs {wanted}, and {found} is installed; run {command}."


def url_in(address: str, schemes: Collection[str]) -> SplitResult | None:
    """The parts of an address with a host and one of the schemes; None if it is no such."""
    try:
        parts = urlsplit(address)
        _ = parts.port  # read, it is checked
    except ValueError:  # a bracket that is not closed, or a port that is none
        return None
    return parts if parts.scheme in schemes and parts.hostname else None


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the package above it is not there
        return False


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: what comes after them (rc1, .dev2) does not matter here."""
    return tuple(int(number) for number in re.findall(r"(?:^|(?<=\d)\.)(\d+)", text))


def key_in(environment: Mapping[str, str], names: Collection[str]) -> str:
    """The key under the first of the names that is set; empty if none is."""
    return next((environment[name].strip() for name in names if environment.get(name, "").strip()), "")


def address_in(client: ModelClient, environment: Mapping[str, str], base_url: str = "") -> str:
    """Where the settings or the environment say that the provider is; empty if neither does.

    What a server on this machine is set to listen on may be a bare host; it gets the scheme and the port of the default.
    """
    address = base_url.strip() or environment.get(client.address_variable, "").strip()
    if address and client.default_address and "://" not in address:
        usual = urlsplit(client.default_address)
        address = f"{usual.scheme}://{address}"
        address = address if urlsplit(address).port is not None else f"{address}:{usual.port}"
    return address.rstrip("/")
