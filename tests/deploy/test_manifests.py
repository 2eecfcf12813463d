"""The compose file and the Kubernetes manifests: what can be seen without running either. The manifests are checked against
the schemas of Kubernetes; for compose files no schema can be had from a package, so its parts are compared with each other."""

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest
import yaml
from tests.deploy.dockerfile import stages
from tests.server.kit import USER, in_process

ROOT = Path(__file__).parents[2]
SCHEMAS = json.loads((ROOT / "tests/data/kubernetes-1.34.json").read_text())
MANIFESTS = sorted((ROOT / "deploy/kubernetes").glob("*.yaml"))
OBJECTS = [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text())]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
NGINX = (ROOT / "deploy/compose/nginx.conf").read_text()
IMAGE = stages(ROOT / "Dockerfile")[-1]


def problems(manifest):
    schema = {"$defs": SCHEMAS["$defs"], "$ref": SCHEMAS["kinds"][manifest["kind"]]}
    return [error.message for error in jsonschema_rs.validator_for(schema).iter_errors(manifest)]


def of_kind(kind):
    return [one for one in OBJECTS if one["kind"] == kind]


@pytest.mark.parametrize("manifest", OBJECTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_a_manifest_is_what_kubernetes_takes(manifest):
    assert problems(manifest) == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("spec", "replica"), 2),
        (("spec", "replicas"), "2"),
        (("spec", "template", "spec", "containers", 0, "readOnlyRootFilesystem"), True),
        (("spec", "template", "spec", "containers", 0, "livenessProbe", "httpget"), {}),
    ],
)
def test_the_schemas_find_mistakes(place, value):
    manifest = json.loads(json.dumps(of_kind("StatefulSet")[0]))
    inner = manifest
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    assert problems(manifest)


def test_two_servers_of_which_one_stays_when_a_node_is_emptied():
    [servers], [budget] = of_kind("StatefulSet"), of_kind("PodDisruptionBudget")
    assert servers["spec"]["replicas"] == 2
    assert budget["spec"]["minAvailable"] == 1
    labels = servers["spec"]["template"]["metadata"]["labels"]
    selectors = [servers["spec"]["selector"]["matchLabels"], budget["spec"]["selector"]["matchLabels"]]
    selectors += [one["spec"]["selector"] for one in of_kind("Service")]
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert servers["spec"]["serviceName"] in {one["metadata"]["name"] for one in of_kind("Service")}


def test_a_pod_may_do_nothing_that_it_need_not():
    [servers] = of_kind("StatefulSet")
    pod = servers["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == IMAGE.last("USER")
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_probes_ports_and_folders_are_those_of_the_image():
    [servers] = of_kind("StatefulSet")
    pod = servers["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [port] = container["ports"]
    assert str(port["containerPort"]) == IMAGE.last("EXPOSE")
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"]}
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    there = {one["name"] for one in pod["volumes"]}
    there |= {one["metadata"]["name"] for one in servers["spec"]["volumeClaimTemplates"]}
    assert set(mounts) == there
    assert IMAGE.last("VOLUME") in mounts.values()
    [key] = [one["secret"]["items"][0]["path"] for one in pod["volumes"] if "secret" in one]
    assert f"{mounts['key']}/{key}" in IMAGE.last("CMD")
    [word, seconds] = container["lifecycle"]["preStop"]["exec"]["command"]
    assert word == "sleep", "requests still come while endpoints name a pod that stops"
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + 20, "the default of shutdown_seconds"


def test_secrets_are_named_and_never_written():
    [servers] = of_kind("StatefulSet")
    [container] = servers["spec"]["template"]["spec"]["containers"]
    by_name = {one["name"]: one for one in container["env"]}
    for name in ("HANDRAIL_STORE_URL", "PGPASSWORD", "HANDRAIL_AUDIT_KEY"):
        assert by_name[name]["valueFrom"]["secretKeyRef"]["name"] == "handrail"
        assert "value" not in by_name[name]
    assert not of_kind("Secret")
    for service in COMPOSE["services"].values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or value.startswith("${HANDRAIL_DB_PASSWORD:?"), name


# Compose
def test_compose_has_two_servers_a_database_and_a_proxy_that_wait_for_each_other():
    services = COMPOSE["services"]
    assert set(services) == {"db", "server-1", "server-2", "proxy"}
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in services, name
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in services[needed] or "build" in services[needed], "somebody tells that it is healthy"
    assert {"server-1", "server-2"} == set(services["proxy"]["depends_on"])


@pytest.mark.parametrize("name", ["server-1", "server-2"])
def test_a_server_of_compose_may_write_its_state_and_nothing_else(name):
    server = COMPOSE["services"][name]
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert server["security_opt"] == ["no-new-privileges:true"]
    assert server["volumes"] == [f"state:{IMAGE.last('VOLUME')}"]
    assert server["secrets"] == ["handrail-key"]
    assert "/run/secrets/handrail-key" in IMAGE.last("CMD"), "where compose puts it"
    assert server["environment"]["HANDRAIL_STORE_URL"].startswith("postgresql://handrail@db/")


def test_every_volume_and_secret_that_compose_uses_is_declared():
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).is_file()
        assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])


def test_the_proxy_of_compose_reaches_both_servers_and_passes_streams_on():
    port = IMAGE.last("EXPOSE")
    # "resolve": a server that was made anew is found at its new address.
    assert re.findall(r"^ *server (server-.*);$", NGINX, re.MULTILINE) == [
        f"server-1:{port} resolve",
        f"server-2:{port} resolve",
    ]
    assert re.search(r"^ *resolver \S+ valid=\d+s;$", NGINX, re.MULTILINE)
    assert re.search(r"^ *zone \S+ \d+k;$", NGINX, re.MULTILINE), (
        "where nginx keeps the addresses that it resolves again"
    )
    version = re.fullmatch(r"nginx:(\d+)\.(\d+).*", COMPOSE["services"]["proxy"]["image"])
    assert version is not None
    assert tuple(map(int, version.groups())) >= (1, 28), "the first stable one that resolves again"
    assert "proxy_buffering off;" in NGINX
    assert "ip_hash" not in NGINX
    [published] = COMPOSE["services"]["proxy"]["ports"]
    assert f"listen {published.split(':')[-1]};" in NGINX
    assert published.startswith("127.0.0.1:"), "nothing is published to the network before somebody decides so"


def host_as_nginx_sends_it(configuration: str, host: str) -> str:
    """The `Host` that a server sees of a request for `host`, where nginx has this configuration."""
    [value] = re.findall(r"^ *proxy_set_header Host (\S+);", configuration, re.MULTILINE)
    return {"$http_host": host, "$host": host.partition(":")[0].lower()}[value]


def example_of_a_proxy() -> str:
    page = (ROOT / "docs/deployment.md").read_text()
    [example] = [part for part in page.split("```") if "proxy_pass" in part]
    return example


@pytest.mark.parametrize("configuration", [NGINX, example_of_a_proxy()], ids=["compose", "the page"])
async def test_a_page_that_was_loaded_through_the_proxy_may_use_its_server(tmp_path, configuration):
    [published] = COMPOSE["services"]["proxy"]["ports"]
    browsed = f"localhost:{published.split(':')[1]}"
    async with in_process(tmp_path) as server:
        host = host_as_nginx_sends_it(configuration, browsed)
        for origin, status in ((f"http://{browsed}", 201), ("http://localhost:1", 403), ("http://localhost", 403)):
            answer = await server.post("/api/sessions", {}, USER, headers={"Host": host, "Origin": origin})
            assert answer.status_code == status, origin
