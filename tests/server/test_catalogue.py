"""The catalogue shows what this user may use, and nothing else exists for that user."""

from tests.runtime.kit import FOUND, reading
from tests.server.kit import OPERATOR, USER, bearer, in_process

from handrail.server.key_ring import Key, hash_of

ANYBODY = "hr_anybody_key_for_tests_00001"
TOOLS = {
    "look": (reading(), FOUND),
    "secret_look": (reading(), FOUND),
    "for_known": (reading(permissions={"requiresAuth": True}), FOUND),
    "for_bob": (reading(availability={"condition": 'user.id == "bob"'}), FOUND),
    "on_site": (reading(availability={"condition": "session.onSite"}), FOUND),
    "aloud": (reading(allowedModes=["voice"]), FOUND),
}
POLICY = {"user_tools": ["look", "for_*", "on_site", "aloud"], "anonymous_tools": ["look", "for_known"]}
KEYS = (
    Key(name="operator", hash=hash_of(OPERATOR), role="operator", user="local"),
    Key(name="ana", hash=hash_of(USER), user="ana"),
    Key(name="anybody", hash=hash_of(ANYBODY)),
)


async def shown(server, key: str, **query: str) -> list[str]:
    answer = await server.client.get("/api/tools", params=query, headers=bearer(key))
    assert answer.status_code == 200, answer.text
    return [tool["id"] for tool in answer.json()["tools"]]


async def test_the_catalogue_has_what_the_key_s_user_may_use(tmp_path):
    async with in_process(tmp_path, tools=TOOLS, keys=KEYS, policy=POLICY) as server:
        assert await shown(server, OPERATOR) == sorted(TOOLS)
        assert await shown(server, USER) == ["aloud", "for_known", "look"]
        assert await shown(server, USER, mode="text") == ["for_known", "look"]
        assert await shown(server, ANYBODY, mode="text") == ["for_known", "look"]
        assert (await server.client.get("/api/tools?mode=smell", headers=bearer(USER))).status_code == 400


async def test_a_tool_that_is_not_the_user_s_has_no_page_and_is_never_suggested(tmp_path):
    async with in_process(tmp_path, tools=TOOLS, keys=KEYS, policy=POLICY) as server:
        assert (await server.get("/api/tools/look", USER)).status_code == 200
        assert (await server.get("/api/tools/secret_look", OPERATOR)).status_code == 200
        for name in ("secret_look", "for_bob", "secret_loo"):
            refused = await server.get(f"/api/tools/{name}", USER)
            assert refused.status_code == 404
            assert "secret_look" not in refused.json()["error"]["message"].removeprefix(f'There is no tool "{name}"')


async def test_in_a_session_its_user_mode_and_facts_decide(tmp_path):
    async with in_process(tmp_path, tools=TOOLS, keys=KEYS, policy=POLICY) as server:
        expected = {"ana": ["for_known", "look"], "bob": ["for_bob", "for_known", "look"]}
        for user, names in expected.items():
            api = await server.open(ANYBODY, user=user)
            assert api.opened["tools"] == names
            assert (await api.show())["tools"] == names
            listed = await server.client.get(f"/api/tools?session={api.id}", headers=api.headers)
            assert [tool["id"] for tool in listed.json()["tools"]] == names
            stolen = await server.client.get(f"/api/tools?session={api.id}", headers=bearer(ANYBODY))
            assert stolen.status_code == 404
        nobody = await server.open(ANYBODY)
        assert nobody.opened["tools"] == ["look"]
        spoken = await server.open(ANYBODY, user="ana", mode="voice")
        assert spoken.opened["tools"] == ["aloud", "for_known", "look"]


ROLES = {"look": (reading(), FOUND), "for_managers": (reading(permissions={"roles": ["manager"]}), FOUND)}


async def test_roles_of_a_key_decide_and_follow_the_key_that_asks(tmp_path):
    keys = (
        Key(name="ana", hash=hash_of(USER), user="ana", roles=("manager",)),
        Key(name="ana-phone", hash=hash_of(ANYBODY), user="ana"),
        Key(name="operator", hash=hash_of(OPERATOR), role="operator", user="local"),
    )
    async with in_process(tmp_path, tools=ROLES, keys=keys) as server:
        assert await shown(server, USER) == ["for_managers", "look"]
        assert await shown(server, ANYBODY) == ["look"]
        api = await server.open(USER)
        assert api.opened["tools"] == ["for_managers", "look"]
        looked = await server.client.get(f"/api/sessions/{api.id}", headers={**api.headers, **bearer(OPERATOR)})
        assert looked.json()["tools"] == ["for_managers", "look"], "an operator who looks takes nothing away"
        phone = {**api.headers, **bearer(ANYBODY)}
        assert (await server.client.get(f"/api/sessions/{api.id}", headers=phone)).json()["tools"] == ["look"]
        body = {"args": {"q": "a"}, "sessionId": api.id}
        refused = await server.client.post("/api/tools/for_managers/try", json=body, headers=phone)
        assert refused.json()["error"]["type"] == "NOT_FOUND"
        again = await server.client.post("/api/tools/for_managers/try", json=body, headers=api.headers)
        assert again.json()["ok"]
