"""Publishers, each over one well-kept client and with an extra of its own.

Nothing imports one but the path that names it.

    class Publisher(KafkaPublisher):
        config = {"bootstrap.servers": "kafka:9092"}

Subclass one, and name that in OUTBOX_PUBLISHER. What the service itself cannot take now is
`BrokerUnavailable`; whatever else is raised concerns one message, which waits. A crash between a
confirmation and COMMIT publishes again: same id.
"""
