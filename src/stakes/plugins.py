"""Selectors and signals of other packages: found by entry point or as ``module:Class``, with their identity.

    load("edges", "stakes.selectors")             # the entry point of an installed package
    load("acme.edges:Edges", "stakes.selectors")  # a class of any module that can be imported
    identity("edges", "stakes.selectors")         # {'package': 'acme-edges 1.0', 'source': '0f3c…'}

What a plugin does decides answers or tiers, so its identity is part of the fingerprint of a run and of a policy: the
distribution with its version, where there is one, and a digest of the source, because an editable copy changes without
a new version.
"""

import hashlib
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from pathlib import Path
from typing import Any

from stakes.errors import BadInput


def installed(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; more than one where packages offer the same name."""
    return _installed(group, tuple(sys.path))


@cache
def _installed(group: str, _path: tuple[str, ...]) -> dict[str, list[EntryPoint]]:
    """Cached by import path, because reading the metadata of all packages takes tens of milliseconds."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        if entry not in found.setdefault(entry.name, []):
            found[entry.name].append(entry)
    return found


def is_code(name: str) -> bool:
    """Whether the name is ``module:Class``, code to import, and not a name that a package offers."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))


def check_clash(name: str, group: str, shipped: bool) -> None:
    """One name means one thing: not a shipped one and a plugin, and not two plugins."""
    offered = installed(group).get(name, [])
    packages = " and ".join(sorted(f"{entry.dist.name if entry.dist else '?'} ({entry.value})" for entry in offered))
    kind = _kind(group)
    if offered and shipped:
        raise BadInput(
            f"{packages} offers a {kind} called {name!r}, which is the name of a shipped one; rename it there, or "
            "uninstall the package"
        )
    if len(offered) > 1:
        raise BadInput(f"{packages} both offer a {kind} called {name!r}; name the class, as in {offered[0].value}")


def _kind(group: str) -> str:
    """What one entry of the group is called: "stakes.families" offers a family."""
    word = group.rpartition(".")[2]
    return word.removesuffix("ies") + "y" if word.endswith("ies") else word.removesuffix("s")


def load(name: str, group: str) -> Any:
    """What the entry point or ``module:Class`` names."""
    check_clash(name, group, shipped=False)
    offered = installed(group).get(name)
    value = offered[0].value if offered else name
    kind = _kind(group)
    module, _, attribute = value.partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the {kind} {name} cannot be imported ({error}); install its package, or put its folder on PYTHONPATH"
        ) from None
    except Exception as error:
        raise BadInput(f"the {kind} {name} cannot be imported ({type(error).__name__}: {error})") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise BadInput(f"{module} has no {attribute!r}, which the {kind} {name} names; correct the name")
        found = getattr(found, part)
    return found


def identity(name: str, group: str) -> dict[str, str]:
    """The plugin's distribution and version, where it has one, and a digest of its source, where there is any."""
    offered = installed(group).get(name)
    value = offered[0].value if offered else name
    found = load(name, group)
    module = getattr(found, "__module__", None) or value.partition(":")[0]
    top = module.partition(".")[0]
    if offered and offered[0].dist is not None:
        package = f"{offered[0].dist.name} {offered[0].dist.version}"
    else:
        names = sorted(set(_distributions(tuple(sys.path)).get(top, ())))
        package = ", ".join(f"{one} {version(one)}" for one in names)
    parts = {"package": package, "source": _source_digest(module)}
    return {key: part for key, part in parts.items() if part}


@cache
def _distributions(_path: tuple[str, ...]) -> Any:
    return packages_distributions()


def _source_digest(module: str) -> str:
    """12 hex digits of all Python files of the module's top-level package, or of the module's file alone."""
    top = sys.modules.get(module.partition(".")[0])
    whole = getattr(top, "__file__", None) if hasattr(top, "__path__") else None
    own = getattr(sys.modules.get(module), "__file__", None)
    files = sorted(Path(whole).parent.rglob("*.py")) if whole else [Path(own)] if own else []
    digest = hashlib.blake2b(digest_size=6)
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest() if files else ""
