"""Signed tokens: a JWT is believed with the right signature, issuer, audience and times, and refused in one sentence otherwise.
Keys come from a file, or from a server on the loopback, are cached, and follow the issuer's rotation."""

import base64
import hmac
import http.server
import json
import threading
import time
from contextlib import contextmanager

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from tests.runtime.kit import FOUND, Tools, reading
from tests.server.kit import bearer, in_process

from handrail.app import open_token_checker
from handrail.cli.doctor_command import _identity
from handrail.contract.errors import ConfigError
from handrail.identity.tokens import TokenChecker, TokenNotBelieved, TokenRules
from handrail.server.key_ring import token_keys
from handrail.settings import Settings, load_settings

NOW = 1_800_000_000.0
ISSUER, AUDIENCE = "https://id.example", "handrail"
SECRET = "a shared secret of more than thirty-two bytes"
FIRST, SECOND = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
CURVE = ec.generate_private_key(ec.SECP256R1())


def jwk(key, kid, **more):
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, **more}


def token(key=FIRST, kid="k1", algorithm="RS256", **claims):
    facts = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ana", "exp": NOW + 600, "roles": ["manager"], **claims}
    facts = {name: value for name, value in facts.items() if value is not ...}
    return jwt.encode(facts, key, algorithm=algorithm, headers={"kid": kid} if kid else None)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def jwks(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [jwk(FIRST, "k1"), jwk(CURVE, "k2")]}), "utf-8")
    return path


def checker(jwks, clock=None, roles=(), **changes):
    rules = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": str(jwks), **changes}
    return TokenChecker(TokenRules(**rules), roles=lambda: roles, now=clock or Clock())


async def refused(check, text) -> str:
    with pytest.raises(TokenNotBelieved) as caught:
        await check.check(text)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0
    return sentence


async def test_a_right_token_says_who_its_user_is(jwks):
    rules = {"roles_claim": "realm.roles", "tenant_claim": "tid", "organisation_claim": "org"}
    check = checker(jwks, roles=["manager", "clerk"], **rules)
    claims = {"realm": {"roles": ["manager", "offline_access", 5]}, "tid": "acme", "org": "org-7", "roles": ...}
    who = await check.check(token(**claims))
    assert (who.user, who.roles, who.tenant, who.organisation) == ("ana", ("manager",), "acme", "org-7")
    assert who.attributes == {"roles": ["manager"], "organisation": "org-7"}
    assert (await checker(jwks).check(token(CURVE, "k2", "ES256", roles="a b"))).roles == ("a", "b")
    assert "tid" in await refused(check, token())


async def test_a_shared_secret_is_enough_for_tokens_signed_with_it():
    check = checker("", secret=SECRET)
    assert (await check.check(token(SECRET, None, "HS256"))).user == "ana"
    assert "signature is wrong" in await refused(
        check, token("another secret of more than thirty-two bytes", None, "HS256")
    )
    assert "not accepted" in await refused(check, token(SECRET * 2, None, "HS512"))
    assert "not accepted" in await refused(check, token())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ey.a.b", "not a signed token"),
        ("eyJhbGciOiJSUzI1NiJ9..", "The token"),
        (token(SECOND), "signature is wrong"),
        (token(kid="k9"), "does not list"),
        (token(CURVE, "k1", "ES256"), "does not list"),
        (token(iss="https://evil.example"), "another issuer"),
        (token(aud="other"), "another audience"),
        (token(aud=...), "lacks"),
        (token(exp=...), "lacks"),
        (token(exp=NOW - 31), "has expired; sign in again"),
        (token(nbf=NOW + 31), "not valid yet"),
        (token(sub=...), 'does not name its user in "sub"'),
        (token(sub="a\nb"), "does not name its user"),
        (token(SECRET, "k1", "HS256"), "not accepted"),
        (jwt.encode({"sub": "ana"}, None, algorithm="none"), "not accepted"),
        (token() + "x" * 9000, "at most 8192"),
    ],
)
async def test_a_wrong_token_is_refused_in_one_sentence(jwks, text, words):
    assert words in await refused(checker(jwks), text)


async def test_the_public_key_is_no_shared_secret(jwks):
    """The old trick: a token signed by HMAC with the issuer's public key as its secret."""
    public = FIRST.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = {"sub": "ana", "iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60}
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "kid": "k1", "typ": "JWT"}, claims)]
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = base64.urlsafe_b64encode(hmac.digest(public, signed, "sha256")).rstrip(b"=")
    assert "not accepted" in await refused(checker(jwks), (signed + b"." + signature).decode())


async def test_a_key_that_has_expired_is_refused_though_the_token_is_fresh(jwks):
    jwks.write_text(json.dumps({"keys": [jwk(FIRST, "k1", exp=NOW + 100), jwk(CURVE, "k2", nbf=NOW + 100)]}), "utf-8")
    clock = Clock()
    check = checker(jwks, clock)
    assert (await check.check(token())).user == "ana"
    assert "not valid yet" in await refused(check, token(CURVE, "k2", "ES256"))
    clock.now += 100
    assert "key that signed the token has expired" in await refused(check, token())


async def test_a_file_is_read_again_when_a_key_is_new_or_its_time_is_over(jwks):
    clock = Clock()
    check = checker(jwks, clock)
    await check.check(token())
    jwks.write_text(json.dumps({"keys": [jwk(SECOND, "k3")]}), "utf-8")
    clock.now += 11
    assert (await check.check(token(SECOND, "k3"))).user == "ana"
    assert "does not list" in await refused(check, token()), "a key that the issuer took back is gone"
    jwks.write_text("{", "utf-8")
    clock.now += 301
    assert (await check.check(token(SECOND, "k3", exp=NOW + 9000))).user == "ana", (
        "a broken file keeps the keys for a while"
    )
    clock.now += 3_600
    assert "cannot be read" in await refused(check, token(SECOND, "k3", exp=NOW + 9000))


@contextmanager
def issuer(keys):
    """An issuer's server on the loopback; counts how often it is asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps({"keys": keys}).encode()
            self.send_response(200 if keys else 500)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def test_the_keys_of_an_address_are_cached_rotated_and_never_fetched_for_every_stranger():
    keys = [jwk(FIRST, "k1")]
    clock = Clock()
    with issuer(keys) as (address, asked):
        check = checker(address, clock)
        for _ in range(5):
            await check.check(token())
        assert len(asked) == 1
        keys[:] = [jwk(FIRST, "k1"), jwk(SECOND, "k2")]
        assert "does not list" in await refused(check, token(SECOND, "k2")), "it was asked a moment ago"
        clock.now += 11
        assert (await check.check(token(SECOND, "k2"))).user == "ana"
        assert len(asked) == 2
        for number in range(20):
            await refused(check, token(kid=f"made-up-{number}"))
        assert len(asked) == 2
        keys.clear()
        clock.now += 301
        assert (await check.check(token(exp=NOW + 900))).user == "ana", "the issuer is away for a moment"
        assert len(asked) == 3
    fresh = checker(address)
    assert "cannot be read at the moment" in await refused(fresh, token())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"secret": SECRET}, "either `jwks` or a shared secret"),
        ({"jwks": ""}, "either `jwks` or a shared secret"),
        ({"issuer": ""}, 'needs "issuer"'),
        ({"audience": ""}, 'needs "audience"'),
        ({"jwks": "", "secret": "short"}, "at least 32 bytes"),
        ({"algorithms": ("HS256",)}, 'has "HS256"'),
        ({"jwks": "http://id.example/keys"}, "must be an https address"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(jwks, changes, words):
    with pytest.raises(ConfigError, match=words):
        checker(**{"jwks": jwks, **changes})


TOOLS = {"look": (reading(), FOUND), "for_managers": (reading(permissions={"roles": ["manager"]}), FOUND)}


async def test_a_role_that_new_tools_name_counts_at_once(tmp_path, jwks):
    tools = Tools(tmp_path / "project")
    tools.write({"look": (reading(permissions={"roles": ["manager"]}), FOUND)})
    registry = tools.build()
    settings = Settings(
        project=jwks.parent, identity_jwks=jwks.name, identity_issuer=ISSUER, identity_audience=AUDIENCE
    )
    check = open_token_checker(settings, registry)
    text = token(exp=time.time() + 600, roles=["manager", "auditor"])
    assert (await check.check(text)).roles == ("manager",)
    tools.write({"books": (reading(permissions={"roles": ["auditor"]}), FOUND)})
    tools.rebuild()
    registry.take(registry.read_again())
    assert (await check.check(text)).roles == ("auditor", "manager")


def test_a_file_of_keys_that_is_not_there_stops_the_start(tmp_path):
    settings = Settings(project=tmp_path, identity_jwks="keys.json", identity_issuer=ISSUER, identity_audience=AUDIENCE)
    with pytest.raises(ConfigError, match="which is no file"):
        open_token_checker(settings)


@pytest.mark.parametrize(
    ("lines", "keys", "words"),
    [
        ('algorithms = ["none"]\njwks = "keys.json"', '{"keys": [{}]}', '"algorithms" in [identity] has "none"'),
        ('jwks = "http://127.0.0.1/keys"', None, "not both"),
        ('jwks = "keys.json"', None, "which is no file"),
        ('jwks = "keys.json"', '{"keys": []}', "has no keys"),
        ('jwks = "keys.json"', "[", "cannot be read as a set of keys"),
        ("", None, "names neither"),
    ],
)
def test_doctor_finds_what_keeps_tokens_from_being_checked(tmp_path, lines, keys, words):
    (tmp_path / "handrail.toml").write_text(
        f'[identity]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\n{lines}\n', "utf-8"
    )
    if keys is not None:
        (tmp_path / "keys.json").write_text(keys, "utf-8")
    environment = {"HANDRAIL_IDENTITY_SECRET": "s" * 40} if "http://" in lines else {}
    (found,) = _identity(load_settings(tmp_path, environment))
    assert (found.name, found.ok) == ("identity", False)
    assert words in found.message


async def test_a_server_takes_a_token_in_the_place_of_a_key(tmp_path, jwks):
    clock = Clock()
    clock.now = time.time()
    check = checker(jwks, clock, tenant_claim="tid")
    end = clock.now + 600
    async with in_process(tmp_path, tools=TOOLS, tokens=token_keys(ISSUER, check)) as server:
        ana = token(exp=end, tid="acme")
        api = await server.open(ana)
        assert api.opened["user"] == "ana"
        assert api.opened["tools"] == ["for_managers", "look"]
        session = server.made.sessions.runtime.sessions[api.id]
        assert (session.tenant, session.roles) == ("acme", {"manager"})
        demoted = {**api.headers, **bearer(token(exp=end, tid="acme", roles=[]))}
        shown = await server.client.get(f"/api/sessions/{api.id}", headers=demoted)
        assert shown.json()["tools"] == ["look"], "a newer token of the same user, with fewer roles"
        for other in (token(exp=end, tid="acme", sub="bob"), token(exp=end, tid="other")):
            foreign = await server.client.get(f"/api/sessions/{api.id}", headers={**api.headers, **bearer(other)})
            assert foreign.status_code == 404
        for wrong, words in ((token(exp=end - 1200, tid="acme"), "has expired"), (token(SECOND, tid="a"), "signature")):
            answer = await server.client.get("/api/tools", headers=bearer(wrong))
            assert answer.status_code == 401
            assert words in answer.json()["error"]["message"]
        assert (await server.client.get("/api/audit", headers=bearer(ana))).status_code == 403, (
            "no token is an operator's"
        )
        assert (await server.client.get("/api/sessions", headers=bearer(ana))).json() == {"sessions": []}
