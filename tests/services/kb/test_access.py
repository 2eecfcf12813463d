"""Access: nobody sees, counts or learns of what is not theirs."""

import pytest

from handrail_reference.services.kb.port import Filter, NamespaceRefused

RECORDS = [
    {"id": "doc:open", "text": "secret plan for everybody", "namespace": "studio"},
    {"id": "doc:world", "text": "secret plan for the world", "namespace": "public"},
    {"id": "doc:mine", "text": "secret plan of u1", "namespace": "personal", "owner": "u1"},
    {"id": "doc:theirs", "text": "secret plan of u2", "namespace": "personal", "owner": "u2"},
    {"id": "doc:tenant", "text": "secret plan of acme", "namespace": "studio", "tenant": "acme"},
    {"id": "doc:closed", "text": "secret plan of the board", "namespace": "board"},
]


async def _found(kb, **who):
    options = {"user": None, "tenant": "", "namespace": "studio", **who}
    return {one.record.id for one in await kb.search("secret plan", limit=10, **options)}


@pytest.mark.parametrize("with_vectors", [False, True], ids=["words", "words and vectors"])
async def test_everyone_finds_what_is_theirs_and_nothing_else(open_base, embedder, with_vectors):
    kb = open_base(*RECORDS, embedder=embedder if with_vectors else None)
    assert await _found(kb) == {"doc:open"}
    assert await _found(kb, namespace="public") == {"doc:world"}
    assert await _found(kb, user="u1", namespace="personal") == {"doc:mine"}
    assert await _found(kb, user="u2", namespace="personal") == {"doc:theirs"}
    assert await _found(kb, user="u3", namespace="personal") == set()
    assert await _found(kb, tenant="acme") == {"doc:tenant"}
    assert await _found(kb, tenant="other") == set()
    assert await _found(kb, user="u1", tenant="acme", namespace="personal") == set()


@pytest.mark.parametrize("with_vectors", [False, True], ids=["words", "words and vectors"])
async def test_nor_does_it_matter_how_many_records_the_others_have(open_base, embedder, with_vectors):
    more = [{"id": f"doc:n{number}", "text": "another secret plan"} for number in range(40)]
    kb = open_base(*RECORDS, *more, embedder=embedder if with_vectors else None)
    found = {one.record.id for one in await kb.search("secret plan", user="u1", tenant="", limit=50)}
    assert found == {"doc:open", *(record["id"] for record in more)}
    assert await _found(kb, user="u1", namespace="personal") == {"doc:mine"}


@pytest.mark.parametrize(
    "who", [{"namespace": "personal"}, {"namespace": "personal", "user": ""}, {"namespace": "board"}]
)
async def test_a_namespace_that_is_not_theirs_is_refused_by_name(open_base, who):
    kb = open_base(*RECORDS)
    with pytest.raises(NamespaceRefused, match=who["namespace"]):
        await _found(kb, **who)


async def test_records_of_others_are_missing_by_id_too(open_base):
    kb = open_base(*RECORDS)
    every = [record["id"] for record in RECORDS]
    assert set(await kb.get(every, user="u1", tenant="", namespace="personal")) == {"doc:mine"}
    assert set(await kb.get(every, user=None, tenant="", namespace="personal")) == set()
    assert set(await kb.get(every, user="u1", tenant="", namespace="board")) == set()
    assert await kb.nearest_ids(["doc:mnie"], user="u1", tenant="", namespace="personal") == ["doc:mine"]
    assert "doc:theirs" not in await kb.nearest_ids(["doc:theirs"], user="u1", tenant="", namespace="personal")


async def test_a_host_may_say_itself_who_reads_what(open_base):
    kb = open_base(*RECORDS, access=lambda user, tenant: ["board"] if user == "chair" else [])
    assert await _found(kb, user="chair", namespace="board") == {"doc:closed"}
    with pytest.raises(NamespaceRefused):
        await _found(kb, user="u1", namespace="studio")


async def test_links_are_looked_for_only_where_the_user_may_read(open_base):
    link = "https://www.linkedin.com/in/x"
    kb = open_base(
        {"id": "person:a", "title": "Ana", "url": link},
        {"id": "person:b", "title": "Ana", "url": link, "namespace": "personal", "owner": "u1"},
        {"id": "person:c", "title": "Ana", "url": link, "namespace": "board"},
    )
    assert [record.id for record, _ in await kb.links(user=None, tenant="", name="ana")] == ["person:a"]
    assert [record.id for record, _ in await kb.links(user="u1", tenant="", name="ana")] == ["person:a", "person:b"]
    assert await kb.links(user="u2", tenant="", id="person:b") == []


OTHERS = [
    {"id": "doc:a", "text": "alpha bankruptcy of the other tenant", "tenant": "acme"},
    {"id": "doc:b", "text": "bankruptcy bankruptcy", "namespace": "personal", "owner": "u2"},
    {"id": "doc:c", "text": "alpha gamma", "namespace": "board"},
]


@pytest.mark.parametrize("with_vectors", [False, True], ids=["words", "words and vectors"])
@pytest.mark.parametrize("query", ["alpha bankruptcy", "alpha", "alpha bankruptcy gamma"])
async def test_the_best_score_does_not_tell_what_others_have(open_base, tmp_path, embedder, with_vectors, query):
    """The reader's scope is large (nearly everything) or small (one among many); neither learns of the others' words."""
    vectors = embedder if with_vectors else None
    for many in (1, 30):
        mine = [{"id": f"doc:m{n}", "text": f"alpha beta {n}"} for n in range(4)]
        others = [{**one, "id": f"{one['id']}{n}"} for one in OTHERS for n in range(many)]
        alone = open_base(*mine, embedder=vectors, path=tmp_path / f"alone{many}.db")
        among = open_base(*mine, *others, embedder=vectors, path=tmp_path / f"among{many}.db")
        (first,), (second,) = [await kb.search(query, user="u1", tenant="", limit=1) for kb in (alone, among)]
        assert (first.record.id, first.score) == (second.record.id, second.score)
        assert 0 < first.score <= 1


async def test_links_by_id_come_from_every_namespace_that_the_user_may_read(open_base):
    link = "https://www.linkedin.com/in/"
    kb = open_base(
        {"id": "person:a", "title": "Ana", "url": f"{link}a"},
        {"id": "person:a", "title": "Ana", "text": "no link", "namespace": "public"},
        {"id": "person:a", "title": "Ana", "url": f"{link}mine", "namespace": "personal", "owner": "u1"},
        {"id": "person:a", "title": "Ana", "url": f"{link}board", "namespace": "board"},
        {"id": "person:a", "title": "Ana", "url": f"{link}acme", "tenant": "acme"},
    )
    assert [one for _, one in await kb.links(user="u1", tenant="", id="person:a")] == [f"{link}a", f"{link}mine"]
    assert [one for _, one in await kb.links(user=None, tenant="", id="person:a")] == [f"{link}a"]


async def test_ids_and_tags_are_the_same_in_every_unicode_form(open_base):
    kb = open_base({"id": "person:kovac\u030c", "title": "K", "text": "x", "tags": ["z\u030cuto"]})
    for asked in ("person:kova\u010d", "person:kovac\u030c"):
        found = await kb.get([asked], user=None, tenant="")
        assert found[asked].id == "person:kova\u010d"
    for tag in ("\u017euto", "z\u030cuto", "\u017dUTO"):
        assert await kb.search("x", user=None, tenant="", wanted=Filter(tags=(tag,)))


async def test_nearest_ids_are_found_among_many_for_several_at_once(open_base):
    many = [{"id": f"person:p{number:05}", "title": f"Person {number}"} for number in range(1500)]
    kb = open_base(
        *many,
        {"id": "person:ana_kovac", "title": "Ana Kovač"},
        {"id": "process:onboarding", "title": "Onboarding"},
        {"id": "process:secret_plan", "title": "Plan", "tenant": "acme"},
    )
    who = {"user": None, "tenant": ""}
    assert (await kb.nearest_ids(["person:ana_kovacs"], **who))[0] == "person:ana_kovac"
    assert (await kb.nearest_ids(["persn:ana_kovac"], **who))[0] == "person:ana_kovac"
    assert set(await kb.nearest_ids(["person:bna_kovac", "proces:onboardin"], **who)) == {
        "person:ana_kovac",
        "process:onboarding",
    }
    assert await kb.nearest_ids(["process:secret_plans"], **who) == []
    assert await kb.nearest_ids(["", ":", "x" * 250, "\ud800"], **who) == []
