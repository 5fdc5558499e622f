"""What ``deploy/`` describes is valid: manifests by the schemas of Kubernetes, and options by those of ``serve``."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.docs.site import parse
from typer.main import get_command

from stakes.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
OPERATORS = {"ServiceMonitor", "Kustomization"}  # resources of others, which Kubernetes's own schemas do not have
VARIABLES = {one.envvar for one in get_command(app).commands["serve"].params}  # type: ignore[attr-defined]


def resources(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text("utf-8")) if one is not None]


def own(kind: str, name: str) -> dict[str, Any]:
    found = [one for path in MANIFESTS for one in resources(path) if one["kind"] == kind]
    return next(one for one in found if one["metadata"]["name"] == name)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_valid(path: Path) -> None:
    check = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate: make test-deploy")
    for one in resources(path):
        if one["kind"] not in OPERATORS:
            check.validate(one, check.latest_version(), strict=True)


def test_a_wrong_field_is_found() -> None:
    check = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate: make test-deploy")
    wrong = own("Deployment", "stakes")
    wrong["spec"]["replica"] = 3
    with pytest.raises(check.ValidationError):
        check.validate(wrong, check.latest_version(), strict=True)


def test_kustomize_names_every_manifest() -> None:
    (named,) = resources(DEPLOY / "kubernetes" / "kustomization.yaml")
    others = {"kustomization.yaml", "servicemonitor.yaml"}
    assert set(named["resources"]) == {path.name for path in MANIFESTS} - others


def test_selectors_and_ports_agree() -> None:
    labels = own("Deployment", "stakes")["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = own(kind, "stakes")["spec"]
        selector = spec.get("podSelector", spec.get("selector", {}))
        assert selector.get("matchLabels", selector) == labels
    (container,) = own("Deployment", "stakes")["spec"]["template"]["spec"]["containers"]
    assert container["ports"][0]["name"] == own("Service", "stakes")["spec"]["ports"][0]["targetPort"]
    assert own("HorizontalPodAutoscaler", "stakes")["spec"]["scaleTargetRef"]["name"] == "stakes"


def test_the_options_of_the_gateway_exist() -> None:
    (container,) = own("Deployment", "stakes")["spec"]["template"]["spec"]["containers"]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    gateway = compose["services"]["gateway"]
    parse("stakes " + " ".join(container["args"]))
    parse("stakes " + " ".join(gateway["command"]))
    assert {one["name"] for one in container["env"]} | set(gateway["environment"]) <= VARIABLES


def test_the_metrics_that_scale_the_gateway_are_exported() -> None:
    from stakes.gateway.monitoring.metrics import Metrics

    names = {one.name for one in Metrics().registry.collect()}
    metrics = own("HorizontalPodAutoscaler", "stakes")["spec"]["metrics"]
    assert {one["pods"]["metric"]["name"] for one in metrics} <= names


def test_compose_names_what_is_there() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    services = compose["services"]
    assert services["gateway"]["deploy"]["replicas"] == 3
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            elif not source.startswith("$"):
                assert source in compose["volumes"]
    assert (ROOT / services["gateway"]["build"]["dockerfile"]).exists()


def test_the_ledger_of_both_can_keep_the_total() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    (server,) = own("StatefulSet", "stakes-redis")["spec"]["template"]["spec"]["containers"]
    for words in (compose["services"]["redis"]["command"], server["args"]):
        for pair in (["--appendonly", "yes"], ["--appendfsync", "everysec"], ["--maxmemory-policy", "noeviction"]):
            assert words[words.index(pair[0]) + 1] == pair[1]


def test_the_image_copies_what_is_there_and_runs_as_nobody() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert all((ROOT / source).exists() for source in line.split()[1:-1])
    assert "USER 10001:10001" in lines
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", "\n".join(lines), re.MULTILINE)
    declared = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert set(extras.split(",")) <= set(declared)
