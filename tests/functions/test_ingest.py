"""The ingest function, called as API Gateway calls it."""

from tests.support import Base, Gateway, said


def test_an_event_is_stored_and_acknowledged(gateway: Gateway, base: Base) -> None:
    reply = gateway.call("POST", "/api/v1/events", said("The buoy is out."), key=gateway.key())
    assert reply.status == 201
    assert reply.body["seq"] == 1
    stored = base.rows("select content, cid from events where event_id = %s", reply.body["event_id"])
    assert stored == [("The buoy is out.", reply.body["cid"])]
