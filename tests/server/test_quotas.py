"""How many conversations are kept: each user's own make room, and nobody's is pushed out by another's."""

from dataclasses import replace

from tests.server.kit import KEYS, OPERATOR, OTHER, USER, bearer, in_process

from handrail.server.key_ring import Key, hash_of
from handrail.server.options import Options


def limited(**limits: int) -> Options:
    return replace(Options(port=0), **limits)


async def kept(server, *apis) -> list[bool]:
    known = await server.sessions.conversations.owners([api.id for api in apis])
    return [api.id in known for api in apis]


async def test_one_user_s_sessions_push_out_nobody_else_s(tmp_path):
    async with in_process(tmp_path, options=limited(max_conversations=10, max_conversations_per_user=3)) as server:
        bob = await server.open(OTHER)
        await bob.say("remember me")
        first = await server.open()
        await first.say("keep this")
        opened = [await server.open() for _ in range(20)]
        await server.sessions._forget_unused()
        assert await kept(server, bob) == [True]
        assert (await bob.show())["messages"][0]["text"] == "remember me"
        # Those in which nothing was said went first.
        assert await kept(server, first, *opened[-2:]) == [True, True, True]
        assert await kept(server, *opened[:-2]) == [False] * 18


async def test_another_key_that_names_the_user_pushes_out_nothing_of_hers(tmp_path):
    async with in_process(tmp_path, options=limited(max_conversations_per_user=2)) as server:
        hers = await server.open()
        await hers.say("keep this")
        user = (await server.runtime.store.load_session(hers.id)).user
        others = [await server.open(OPERATOR, user=user) for _ in range(4)]
        for api in others[-2:]:
            await api.say("hello")
        await server.open(OPERATOR, user=user)
        assert await kept(server, hers) == [True]
        assert await kept(server, *others) == [False, False, False, True]


async def test_a_user_s_oldest_conversation_makes_room_and_its_session_ends(tmp_path):
    async with in_process(tmp_path, options=limited(max_conversations_per_user=2)) as server:
        apis = []
        for number in range(3):
            apis.append(await server.open())
            await apis[-1].say(f"number {number}")
        assert await kept(server, *apis) == [False, True, True]
        gone = await server.client.get(f"/api/sessions/{apis[0].id}", headers=apis[0].headers)
        assert gone.status_code == 410
        await server.sessions._end_all_unused()
        record = await server.runtime.store.load_session(apis[0].id)
        assert record.active is False


async def test_a_key_that_is_full_is_refused_and_others_are_not(tmp_path):
    options = limited(max_conversations_per_key=3, max_conversations_per_user=2)
    async with in_process(tmp_path, options=options) as server:
        said = [await server.open(OPERATOR, user=name) for name in ("eva", "ivo", "mia")]
        for api in said:
            await api.say("hello")
        refused = await server.client.post("/api/sessions", json={"user": "leo"}, headers=bearer(OPERATOR))
        assert refused.status_code == 429
        assert "max_conversations_per_key" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) > 0
        assert await kept(server, *said) == [True, True, True]
        assert (await server.client.post("/api/sessions", json={}, headers=bearer(USER))).status_code == 201
        # Somebody who has one of the key's own places may use it anew.
        assert (
            await server.client.post("/api/sessions", json={"user": "eva"}, headers=bearer(OPERATOR))
        ).status_code == 201
        assert await kept(server, *said) == [False, True, True]


async def test_a_full_server_refuses_new_sessions_and_deletes_none(tmp_path):
    async with in_process(tmp_path, options=limited(max_conversations=2)) as server:
        ana, bob = await server.open(), await server.open(OTHER)
        for api in (ana, bob):
            await api.say("hello")
        refused = await server.client.post("/api/sessions", json={"user": "eva"}, headers=bearer(OPERATOR))
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "UNAVAILABLE"
        assert await kept(server, ana, bob) == [True, True]
        # The refused session is not left behind in memory or in the store.
        assert len(server.sessions) == 2
        assert set(server.runtime.sessions) == {ana.id, bob.id}
        await bob.server.client.delete(f"/api/sessions/{bob.id}", headers=bob.headers)
        assert (
            await server.client.post("/api/sessions", json={"user": "eva"}, headers=bearer(OPERATOR))
        ).status_code == 201


async def test_a_conversation_that_is_being_answered_is_never_pushed_out(tmp_path):
    async with in_process(tmp_path, options=limited(max_conversations_per_user=1)) as server:
        ana = await server.open()
        await ana.post('call nap {"q": "30"}', "m1")
        refused = await server.client.post("/api/sessions", json={}, headers=bearer(USER))
        assert refused.status_code == 429
        assert "all of them in use" in refused.json()["error"]["message"]
        assert await kept(server, ana) == [True]
        server.tools.go()


async def test_visitors_who_share_a_key_push_out_nothing_that_was_said(tmp_path):
    shared = "hr_shared_key_for_tests_0000001"
    key = Key(name="site", hash=hash_of(shared), role="user", user=None)
    async with in_process(tmp_path, options=limited(max_conversations_per_user=2), keys=[*KEYS, key]) as server:
        first = await server.open(shared)
        await first.say("remember me")
        opened = [await server.open(shared) for _ in range(5)]
        assert await kept(server, first, *opened) == [True, False, False, False, True, True]
