"""The starter knowledge: a first question has a cited answer, and what was deleted stays away."""

from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_queries import statistics
from handrail_reference.services.kb.record_writes import Tally, put_records, remove_records
from handrail_reference.services.kb.starter import SOURCE, starter_records


async def test_a_first_question_has_a_cited_answer_for_anybody(open_base):
    kb = open_base(with_starter=True)
    best = (await kb.search("What is Handrail?", user=None, tenant=""))[0]
    assert best.record.id == "doc:handrail_overview"
    assert "tool runtime for agents" in best.snippet
    assert best.record.metadata == {"page": "README.md"}


async def test_every_page_and_guide_is_there(open_base):
    records = {record.id: record for record in starter_records()}
    assert {"doc:handrail_overview", "doc:handrail_flow_the_call", "doc:handrail_tool_kb_search"} <= set(records)
    assert records["doc:handrail_flow_the_call"].title == "One call through the files: The call"
    assert {record.namespace for record in records.values()} == {"studio"}


async def test_a_base_with_records_gets_none(open_base):
    kb = open_base({"id": "doc:mine", "text": "mine"}, with_starter=True)
    await kb.warm_up()
    assert kb.database.read_now(statistics)["records"] == 1


async def test_once_deleted_they_stay_away(open_base):
    kb = open_base(with_starter=True)
    await kb.warm_up()
    keys = kb.database.read_now(
        lambda db: [row[0] for row in db.execute("SELECT key FROM record WHERE source = ?", (SOURCE,))]
    )
    assert kb.database.write_now(lambda db: remove_records(db, keys)) == len(keys) > 10
    again = open_base(with_starter=True)
    await again.warm_up()
    assert again.database.read_now(statistics)["records"] == 0


async def test_they_are_kept_current(open_base):
    kb = open_base(with_starter=True)
    await kb.warm_up()
    kb.database.write_now(lambda db: db.execute("UPDATE fact SET value = 'old' WHERE name = 'starter'"))
    kb.database.write_now(
        lambda db: db.execute("UPDATE record SET text = 'old', hash = 'old' WHERE id = 'doc:handrail_flow_the_call'")
    )
    again = open_base(with_starter=True)
    found = await again.get(["doc:handrail_flow_the_call"], user=None, tenant="")
    assert "pipeline" in found["doc:handrail_flow_the_call"].text


async def test_what_an_operator_gave_to_a_tenant_stays_when_they_are_renewed(open_base):
    kb = open_base(with_starter=True)
    await kb.warm_up()
    given = make_record({"id": "doc:handrail_old", "text": "given", "tenant": "acme", "source": SOURCE})
    kb.database.write_now(lambda db: put_records(db, [given], Tally()))
    kb.database.write_now(lambda db: db.execute("UPDATE fact SET value = 'old' WHERE name = 'starter'"))
    again = open_base(with_starter=True)
    assert await again.get(["doc:handrail_old"], user=None, tenant="acme")
    assert await again.get(["doc:handrail_overview"], user=None, tenant="")
    assert not await again.get(["doc:handrail_overview"], user=None, tenant="acme")
