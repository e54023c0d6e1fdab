"""What the source documents ask, row by row: where it is here, and the test that shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent


class Row(NamedTuple):
    """One thing that a document says."""

    says: str
    """A sentence of at most twelve words."""
    where: str
    """A page of the docs, with its anchor; or a module's path below the package."""
    shown: str = ""
    """The tests that show it, `file::name`, separated by spaces."""
    but: str = ""
    """What is otherwise here, and why. Where no test can show the row it stands alone."""


POWERTOOLS = (
    Row(
        "A record has key, status, two expiries, response and payload hash.",
        "explanation/how-it-works.md#the-life-of-a-record",
        "tests/stores/dynamodb/test_store.py::test_what_is_in_an_item "
        "tests/stores/dynamodb/test_store.py::test_large_answers",
    ),
    Row(
        "The key is the whole payload, or what JMESPath selects.",
        "how-to/functions.md#say-what-identifies-a-call",
        "tests/functions/test_calls.py::test_the_whole_payload_is_the_key "
        "tests/functions/test_calls.py::test_a_selected_key",
    ),
    Row(
        "Three functions open JSON, base64 and gzip inside a payload.",
        "how-to/keys.md#functions",
        "tests/core/expressions/test_expressions.py::test_unpacking",
    ),
    Row(
        "One table serves all functions: their names are part of keys.",
        "how-to/functions.md#names",
        "tests/functions/test_calls.py::test_two_functions_do_not_mix "
        "tests/functions/test_naming.py::test_a_name_of_its_own",
    ),
    Row(
        "The docs have the IAM rights and a template of the table.",
        "how-to/store-in-dynamodb.md#permissions",
        "tests/docs/test_dynamodb.py::test_the_rights_of_the_application "
        "tests/docs/test_dynamodb.py::test_cloudformation",
    ),
    Row(
        "An item of DynamoDB holds 400 KB at most.",
        "reference/http.md#bodies-that-are-stored",
        "tests/stores/dynamodb/test_store.py::test_large_answers",
    ),
    Row(
        "A first call costs two requests; capacity follows from the sizes.",
        "how-to/store-in-dynamodb.md#operate",
        "tests/stores/dynamodb/test_store.py::test_a_first_call_is_two_requests "
        "tests/stores/dynamodb/test_store.py::test_what_meets_a_record_is_one_request "
        "tests/stores/dynamodb/test_store.py::test_the_size_of_an_item",
        "A retry is one request here, a refused write that brings the record, in place of "
        "a write and a read.",
    ),
    Row(
        "A decorator guards a Lambda handler of event and context.",
        "how-to/moving-over.md#from-aws-lambda-powertools",
        "tests/contrib/deadlines/test_hosts.py::test_a_guarded_handler",
    ),
    Row(
        "The handler's context says how long a record is in progress.",
        "how-to/batches-and-durable-functions.md#hosts-with-a-limit",
        "tests/contrib/deadlines/test_hosts.py::test_its_limit "
        "tests/functions/test_lost.py::test_a_lease_under_a_deadline_is_not_renewed",
    ),
    Row(
        "One argument is the payload: a dict, dataclass, model or event.",
        "how-to/functions.md#say-what-identifies-a-call",
        "tests/functions/test_arguments.py::test_the_one_argument_that_counts "
        "tests/core/expressions/test_expressions.py::test_expressions "
        "tests/functions/test_regressions.py::test_a_data_class_of_an_event_source",
    ),
    Row(
        "An attribute of an event's data class may be the key.",
        "how-to/functions.md#say-what-identifies-a-call",
        "tests/functions/test_regressions.py::test_a_data_class_of_an_event_source "
        "tests/functions/test_regressions.py::test_a_root_that_is_the_arguments_own_name",
    ),
    Row(
        "The batch utility runs over a guarded function, and reports failures.",
        "how-to/batches-and-durable-functions.md#use-batches",
        "tests/contrib/batches/test_batch.py::test_the_batch_processor_of_powertools "
        "tests/contrib/batches/test_batch.py::test_a_lambda_function",
    ),
    Row(
        "The message's id is the key of a batch record.",
        "how-to/batches-and-durable-functions.md#use-batches",
        "tests/contrib/batches/test_batch.py::test_the_batch_processor_of_powertools "
        "tests/docs/test_moving_over.py::test_batches",
    ),
    Row(
        "A call that timed out runs again once its deadline has passed.",
        "how-to/batches-and-durable-functions.md#hosts-with-a-limit",
        "tests/functions/test_lost.py::test_a_lease_under_a_deadline_is_not_renewed",
    ),
    Row(
        "An exception inside deletes the record; one outside leaves it.",
        "how-to/functions.md#what-a-caller-meets",
        "tests/functions/test_endings.py::test_an_exception_frees_the_key "
        "tests/entry_points/test_outcomes.py::test_an_on_commit_callback_that_fails",
        "A freed record stays, and counts attempts.",
    ),
    Row(
        "Exceptions say: missing key, in progress, other payload, store away.",
        "how-to/moving-over.md#from-aws-lambda-powertools",
        "tests/functions/test_calls.py::test_a_missing_key "
        "tests/functions/test_calls.py::test_a_busy_call_reports_when_to_ask_again "
        "tests/functions/test_calls.py::test_what_must_not_change "
        "tests/functions/test_calls.py::test_without_a_store",
        "None says that a record is there or not: a claim returns it.",
    ),
    Row(
        "Seven sequences: success, cached, expired, concurrent, timed out, failed, replayed.",
        "how-to/functions.md#what-a-caller-meets",
        "tests/functions/test_calls.py::test_once "
        "tests/runtime/test_registry.py::TestThroughAnEntryPoint::test_a_replay_costs_no_query "
        "tests/functions/test_calls.py::test_expiry "
        "tests/functions/test_calls.py::test_threads "
        "tests/functions/test_lost.py::test_a_lease_under_a_deadline_is_not_renewed "
        "tests/functions/test_endings.py::test_an_exception_frees_the_key",
    ),
    Row(
        "Table, partition key, sort key and each attribute have chosen names.",
        "how-to/moving-over.md#the-stores-options",
        "tests/stores/dynamodb/test_store.py::TestCompositeKey "
        "tests/docs/test_moving_over.py::test_attributes",
    ),
    Row(
        "In a shared table each Lambda has a partition value.",
        "how-to/moving-over.md#the-stores-options",
        "tests/stores/dynamodb/test_store.py::TestCompositeKey",
        "The default is one value, as a project may run outside of Lambda; the page has "
        "the line for one each.",
    ),
    Row(
        "Session, configuration, client and endpoint of boto are given.",
        "how-to/store-in-dynamodb.md#install",
        "tests/stores/dynamodb/test_store.py::test_the_defaults_of_the_client "
        "tests/stores/dynamodb/test_store.py::test_a_client_of_ones_own",
    ),
    Row(
        "The attribute of the expiry may be called expires_at.",
        "how-to/store-in-dynamodb.md#install",
        "tests/stores/dynamodb/test_store.py::test_our_names_yield",
    ),
    Row(
        "Configuration: selected key, payload validation, expiry, local cache, hash.",
        "how-to/moving-over.md#from-aws-lambda-powertools",
        "tests/docs/test_moving_over.py::test_keywords "
        "tests/functions/test_calls.py::test_expiry "
        "tests/runtime/test_registry.py::TestLocalCache::test_how_many "
        "tests/core/test_canonical.py::test_digests",
        "A day and SHA-256 are the defaults, in place of an hour and MD5.",
    ),
    Row(
        "Falsy payloads are keys, or missing.",
        "how-to/keys.md#keys-from-the-payload",
        "tests/functions/test_calls.py::test_falsy_keys_are_keys "
        "tests/functions/test_calls.py::test_a_missing_key "
        "tests/docs/test_moving_over.py::test_falsy_keys",
    ),
    Row(
        "The record's own times decide, not when DynamoDB deletes it.",
        "how-to/store-in-dynamodb.md#operate",
        "tests/stores/dynamodb/test_store.py::test_expired_and_not_yet_deleted",
    ),
    Row(
        "A known key with another amount is an error, if validated.",
        "how-to/functions.md",
        "tests/functions/test_calls.py::test_what_must_not_change "
        "tests/functions/test_calls.py::test_a_selected_key",
    ),
    Row(
        "A store of one's own has few methods, and dangers.",
        "how-to/your-own-store.md#what-you-write-three-methods",
        "tests/docs/test_your_own_store.py::test_the_page",
    ),
    Row(
        "What validates or unwraps the event stands outside.",
        "how-to/moving-over.md#from-aws-lambda-powertools",
        "tests/docs/test_moving_over.py::test_what_unwraps_the_event",
    ),
    Row(
        "An environment variable switches it off, in tests too.",
        "reference/settings.md#the-environment",
        "tests/functions/test_calls.py::test_disabled_by_the_environment "
        "tests/runtime/test_switch.py::test_the_environment_is_read_live",
    ),
    Row(
        "Tests use a local server, or another table of the layer.",
        "how-to/store-in-dynamodb.md#operate",
        "tests/stores/dynamodb/test_store.py::TestDynamoDBStore "
        "tests/stores/dynamodb/test_store.py::test_another_table_of_a_live_store",
    ),
    Row(
        "The payload must be passed by keyword.",
        "how-to/functions.md#say-what-identifies-a-call",
        "tests/functions/test_arguments.py::test_however_it_is_called "
        "tests/functions/test_arguments.py::test_the_one_argument_that_counts",
        "It need not: arguments are bound by the signature.",
    ),
    Row(
        "Later versions: response hook, Redis, key prefix, serializers, the context registered.",
        "how-to/moving-over.md#from-aws-lambda-powertools",
        "tests/functions/test_calls.py::test_on_replay "
        "tests/stores/redis/test_store.py::TestRedisStore "
        "tests/functions/test_calls.py::test_two_functions_do_not_mix "
        "tests/functions/test_calls.py::test_serializers "
        "tests/contrib/deadlines/test_hosts.py::test_its_limit",
    ),
)

DECORATOR = (
    Row(
        "A lock that has expired is taken over by a conditional write.",
        "stores/dynamodb/store.py",
        "tests/stores/dynamodb/test_store.py::test_a_takeover_race",
    ),
    Row(
        "A record that vanishes between two requests is claimed again.",
        "stores/dynamodb/store.py",
        "tests/stores/dynamodb/test_store.py::test_deleted_before_the_takeover",
    ),
    Row(
        "A failure is stored, and replayed as a 500.",
        "how-to/functions.md#results-and-exceptions",
        "tests/functions/test_endings.py::test_a_kept_exception "
        "tests/docs/test_dialects.py::test_an_exception_is_not_remembered",
        "A function names such exceptions. A view's 500 frees its key, so that a retry may "
        "succeed.",
    ),
    Row(
        "Without a key a request passes; header names ignore case.",
        "reference/http.md#the-key",
        "tests/entry_points/test_every_entry_point.py::test_without_a_key_every_request_runs "
        "tests/http/test_keys.py::test_the_name_of_the_header_is_configurable",
    ),
    Row(
        "While the first runs, a duplicate gets 409.",
        "reference/problems.md#in-progress",
        "tests/entry_points/test_busy.py::test_a_duplicate_is_refused_at_once",
    ),
    Row(
        "The lock ends after seconds, the record after an hour.",
        "reference/settings.md#lease",
        "tests/functions/test_calls.py::test_expiry "
        "tests/faults/test_leases.py::test_a_dead_owner_is_taken_over_after_its_lease",
    ),
    Row(
        "If finalizing fails, the result is returned and the failure logged.",
        "explanation/how-it-works.md#a-settle-that-cannot-be-written",
        "tests/faults/test_outages.py::test_no_database_after_the_work_of_a_lease "
        "tests/engine/test_deferring.py::test_a_store_that_stays_away",
    ),
    Row(
        "The provider gets one key from every attempt.",
        "how-to/money.md#send-a-derived-key",
        "tests/entry_points/test_request_idempotency.py::test_the_downstream_key_is_the_same_at_every_attempt",
    ),
    Row(
        "Keys belong to a user, and spread over the partitions.",
        "reference/http.md#the-scope",
        "tests/entry_points/test_every_entry_point.py::test_keys_of_two_users_never_meet "
        "tests/stores/dynamodb/test_store.py::test_what_is_in_an_item",
    ),
    Row(
        "Latency is 5 to 15 ms, a million requests cost $2.50.",
        "how-to/store-in-dynamodb.md#operate",
        but="Nothing here runs on a table of AWS: requests and sizes are tested, the price is "
        "computed from them, and "
        "latency is not measured.",
    ),
    Row(
        "With an idempotent provider the effect is there exactly once.",
        "explanation/what-is-promised.md#at-least-once-here-at-most-once-there",
        "tests/faults/test_kills_elsewhere.py::test_killed_before_the_settle",
    ),
)

ESSAY = (
    Row(
        "A key, a durable store and a rule: 200, 409, 422.",
        "reference/http.md#responses",
        "tests/entry_points/test_busy.py::test_a_duplicate_is_refused_at_once",
    ),
    Row(
        "Each call site makes a key, and every retry sends it.",
        "how-to/calling-providers.md#names",
        "tests/contrib/client/test_calls.py::test_retried",
    ),
    Row(
        "Record and charge are inserted in one transaction.",
        "explanation/what-is-promised.md#the-two-guarantees",
        "tests/stores/orm/test_guard.py::test_nothing_is_seen_before_commit "
        "tests/faults/test_kills.py::test_killed_before_commit",
    ),
    Row(
        "A slow effect elsewhere is outside of the record's transaction.",
        "explanation/what-is-promised.md#choose-a-guarantee",
        "tests/stores/orm/test_statements.py::test_first_request_lease "
        "tests/faults/test_leases.py::test_a_living_owner_is_not_taken_over",
    ),
    Row(
        "Another body gets 409 or 422; a pending duplicate 409, or waits.",
        "how-to/keys.md#refusals",
        "tests/core/dialects/test_on_the_wire.py::test_statuses "
        "tests/entry_points/test_busy.py::test_a_duplicate_may_wait",
        "409 for another body takes a dialect of your own, with `statuses`.",
    ),
    Row(
        "The hash leaves out time stamps and trace ids.",
        "how-to/keys.md#payloads-with-parts-that-always-change",
        "tests/contrib/fingerprints/test_json_body.py::test_a_guarded_view",
    ),
    Row(
        "Keys are a client's UUID, derived, or issued by the server.",
        "how-to/keys.md#key-formats",
        "tests/entry_points/test_key_formats.py::test_a_key_is_one_key "
        "tests/functions/test_handles.py::test_derive_key "
        "tests/contrib/limits/test_issued_keys.py::test_one_operation",
    ),
    Row(
        "A gateway refuses a POST without a key.",
        "how-to/middleware.md#require-a-key",
        "tests/entry_points/test_middleware.py::test_a_key_can_be_required_of_the_project "
        "tests/contrib/publishing/test_amazon.py::test_the_hook",
    ),
    Row(
        "After 24 hours a retry is a new operation.",
        "reference/settings.md#ttl",
        "tests/stores/orm/test_guard.py::test_a_new_life",
    ),
    Row(
        "An outbox row commits with its effect; consumers drop duplicates.",
        "how-to/outbox.md",
        "tests/contrib/outbox/test_sending.py::TestTransactions::test_inside_a_guard "
        "tests/messages/test_outbox_over_rabbitmq.py::test_each_message_has_its_effect_once",
    ),
    Row(
        "Messages go to Kafka; consumers commit offsets after the effect.",
        "how-to/tasks-and-messages.md#kafka-aws-cloudevents",
        "tests/contrib/outbox/brokers/test_kafka.py::test_a_crash_between_publish_and_mark "
        "tests/contrib/outbox/brokers/test_consumer.py::test_an_offset_is_committed_after_its_message "
        "tests/contrib/outbox/brokers/test_consumer.py::test_twice_published_once_done",
    ),
    Row(
        "Claiming is one INSERT with ON CONFLICT; only conflicts are locked.",
        "explanation/proof.md#statements",
        "tests/stores/orm/test_statements.py::test_first_request_atomic "
        "tests/stores/orm/test_statements.py::test_known_keys",
        "The owner locks its row, too: the lock shows that it lives. A replay locks nothing.",
    ),
    Row(
        "A limit of attempts per card stops fresh keys.",
        "how-to/floods-and-duplicates.md#limit-new-keys",
        "tests/contrib/limits/test_limits.py::test_too_many_new_keys "
        "tests/contrib/limits/test_limits.py::test_who_is_counted",
        "New keys are counted, by client or card. Attempts with a card belong to a limiter.",
    ),
    Row(
        "gRPC has the key in its metadata, as x-idempotency-key.",
        "how-to/tools-and-agents.md#grpc-methods",
        "tests/contrib/grpc/test_calls.py::test_once "
        "tests/contrib/grpc/test_calls.py::test_another_request "
        "tests/contrib/grpc/test_calls.py::test_in_flight",
    ),
    Row(
        "A retry after its deadline is refused; pending waits end there.",
        "how-to/batches-and-durable-functions.md#requests-with-a-deadline",
        "tests/contrib/deadlines/test_middleware.py::test_a_late_request "
        "tests/contrib/deadlines/test_middleware.py::test_what_has_begun_runs_on "
        "tests/contrib/client/test_calls.py::test_the_deadline_is_handed_on",
        "What has begun runs on under its lease: a retry beside it would be the double charge.",
    ),
    Row(
        "Each compensation of a saga has its own key.",
        "how-to/steps.md#undo",
        "tests/contrib/client/test_steps.py::test_the_undo_has_a_key_of_its_own "
        "tests/contrib/steps/test_undoing.py::test_an_undo_that_breaks_off",
    ),
    Row(
        "The id of Temporal's activity is the key.",
        "how-to/tasks-and-messages.md#temporal",
        "tests/messages/test_temporal.py::test_the_second_attempt_is_a_replay "
        "tests/messages/test_temporal.py::test_another_activity_runs",
    ),
    Row(
        "Two-phase commit and exactly-once delivery are myths.",
        "explanation/what-is-promised.md#at-least-once-here-at-most-once-there",
        but="It is an argument, which the page makes; nothing runs that a test could see.",
    ),
    Row(
        "A sample run of four attempts shows each status.",
        "reference/http.md#responses",
        "tests/entry_points/test_busy.py::test_a_duplicate_is_refused_at_once",
        "Another body gets 422; 409, as there, by a dialect's `statuses`.",
    ),
)

ARCHITECTURE = (
    Row(
        "The client keeps its key until the request has succeeded.",
        "how-to/clients.md#in-a-browser",
        "tests/contrib/forms/test_fetch.py::test_the_rules "
        "tests/proofs/browser/test_fetch.py::test_a_reload",
    ),
    Row(
        "The gateway: a key, a UUID v4, a rate for each client.",
        "how-to/keys.md#key-formats",
        "tests/entry_points/test_middleware.py::test_a_key_can_be_required_of_the_project "
        "tests/entry_points/test_key_formats.py::test_another_key_is_refused "
        "tests/contrib/limits/test_limits.py::test_too_many_new_keys",
    ),
    Row(
        "Redis has lock and response, which expire together.",
        "how-to/store-in-redis.md",
        "tests/stores/redis/test_store.py::test_each_verb_is_one_trip "
        "tests/stores/redis/test_store.py::test_redis_deletes_what_has_expired",
        "Both are one value, so there is no gap between them.",
    ),
    Row(
        "One transaction survives a failover of the database.",
        "explanation/what-is-promised.md#not-promised",
        "tests/faults/test_promotion.py::test_a_promoted_replica_has_record_and_writes_or_neither",
    ),
    Row(
        "The business row has the key, UNIQUE; a violation responds.",
        "how-to/floods-and-duplicates.md#a-key-on-the-row",
        "tests/contrib/business_key/test_rows.py::test_a_second_row_is_refused_when_the_record_is_lost",
        "The response is gone with its record, so it is 409 with the row's address.",
    ),
    Row(
        "Four layers, of which any one may fail.",
        "how-to/choosing-a-store.md#a-store-in-front-of-a-store",
        "tests/entry_points/test_layered_front.py::test_trouble "
        "tests/contrib/business_key/test_rows.py::test_records_in_redis_that_were_flushed "
        "tests/contrib/suspects/test_idempotency_suspects.py::test_what_is_a_suspect",
    ),
    Row(
        "Redis catches nearly all duplicates before the database.",
        "how-to/choosing-a-store.md#a-store-in-front-of-a-store",
        "tests/stores/layered/test_store.py::TestTrips::test_a_replay",
        "How many depends on how soon clients retry, so no share is promised.",
    ),
    Row(
        "A job finds equal amounts on one card within five minutes.",
        "how-to/floods-and-duplicates.md#find-duplicates-afterwards",
        "tests/contrib/suspects/test_idempotency_suspects.py::test_what_is_a_suspect",
    ),
    Row(
        "Stripe replays, marks replays, and finds requests by their ids.",
        "how-to/keys.md#dialects",
        "tests/core/dialects/test_on_the_wire.py::test_a_replay_is_marked "
        "tests/core/dialects/test_on_the_wire.py::test_what_is_remembered "
        "tests/admin/test_listing.py::TestSearch::test_the_id_of_a_request",
    ),
    Row(
        "Retries: throttling, network, 5xx; a rate that adapts to throttling.",
        "how-to/calling-providers.md#retries",
        "tests/contrib/client/test_calls.py::test_retried "
        "tests/contrib/client/test_adaptive.py::test_it_falls_as_throttling_grows_and_comes_back "
        "tests/contrib/client/test_adaptive.py::test_the_next_call_waits",
    ),
    Row(
        "What has no key is not retried; safe methods are.",
        "how-to/calling-providers.md#names",
        "tests/contrib/client/test_calls.py::test_unnamed "
        "tests/contrib/client/test_calls.py::test_safe_methods_pass",
        "A safe method passes once: retry it as you like.",
    ),
    Row(
        "AWS' tokens: a client's request token, a name, SQS FIFO's id.",
        "how-to/outbox.md#ready-publishers",
        "tests/contrib/outbox/brokers/test_aws.py::test_a_message "
        "tests/contrib/outbox/brokers/test_aws.py::test_a_duplicate "
        "tests/entry_points/test_request_idempotency.py::test_the_downstream_key_is_the_same_at_every_attempt",
    ),
    Row(
        "PayPal: written down first, and looked up after a restart.",
        "how-to/calling-providers.md#look-it-up-first",
        "tests/contrib/client/test_kills.py::test_it_is_looked_up "
        "tests/contrib/client/test_lookup.py::test_what_it_decides",
    ),
    Row(
        "Ten million a day: operations, bytes and memory follow.",
        "explanation/speed-and-limits.md#how-much-it-stores",
        "tests/stores/redis/test_store.py::test_each_verb_is_one_trip "
        "tests/stores/redis/test_store.py::test_a_record_is_small",
        "Trips and bytes are tested; the page computes the rest from them.",
    ),
    Row(
        "Redis syncs its log every second, and evicts nothing.",
        "how-to/store-in-redis.md#install",
        "tests/checks/test_store_servers.py::TestRedis::test_as_it_is_installed "
        "tests/checks/test_store_servers.py::TestRedis::test_eviction",
    ),
    Row(
        "A failover of Redis takes less than 30 seconds.",
        "explanation/proof.md#a-primary-of-redis-is-killed",
        "tests/proofs/reach/cases/failover.py::test_a_replica_takes_over",
        "`make reach` measures how long; the page has the figures.",
    ),
    Row(
        "Without its store: fail open, fail closed, or fall through.",
        "how-to/choosing-a-store.md#when-the-store-fails",
        "tests/functions/test_calls.py::test_without_a_store "
        "tests/stores/layered/test_store.py::TestFailingFronts::test_down",
    ),
    Row(
        "If Redis is unavailable, somebody is paged.",
        "how-to/metrics.md#idempotencyfrontdown",
        "tests/contrib/metrics/test_fronts.py::test_a_front_that_is_down "
        "tests/docs/test_monitoring.py::test_every_alert_is_tested",
    ),
    Row(
        "Five metrics with thresholds, from 99 % served to rising duplicates.",
        "how-to/metrics.md#operate",
        "tests/docs/test_monitoring.py::test_the_rules_and_their_tests_pass "
        "tests/docs/test_monitoring.py::test_every_alert_is_tested",
    ),
    Row(
        "The team hears which clients send no keys.",
        "how-to/metrics.md#idempotencyclientsendsnokeys",
        "tests/contrib/metrics/test_clients.py::test_with_a_key_and_without "
        "tests/docs/test_monitoring.py::test_every_alert_is_tested",
    ),
    Row(
        "Powertools by a header: required, validated, kept for a day.",
        "how-to/moving-over.md#from-aws-lambda-powertools",
        "tests/entry_points/test_middleware.py::test_a_key_can_be_required_of_the_project "
        "tests/entry_points/test_every_entry_point.py::test_another_body_under_the_key_is_refused "
        "tests/stores/orm/test_guard.py::test_a_new_life",
    ),
    Row(
        "API Gateway validates the header, by OpenAPI or CloudFormation.",
        "how-to/clients.md#when-not",
        "tests/contrib/publishing/test_amazon.py::test_the_hook",
        "It checks that the header is there, not its format.",
    ),
    Row(
        "An event of EventBridge says that a payment was created.",
        "how-to/outbox.md#ready-publishers",
        "tests/contrib/outbox/brokers/test_aws.py::test_an_event "
        "tests/contrib/outbox/brokers/test_aws.py::test_published_again",
    ),
    Row(
        "SQS FIFO: check before the queue, and after it, too.",
        "how-to/tasks-and-messages.md#kafka-aws-cloudevents",
        "tests/contrib/outbox/test_sending.py::TestTransactions::test_inside_a_guard "
        "tests/docs/test_message_keys.py::test_a_key",
    ),
    Row(
        "A persistence layer for Redis is written by hand.",
        "how-to/store-in-redis.md",
        "tests/stores/redis/test_store.py::TestRedisStore",
        "It is there, with signed records and fenced owners.",
    ),
)

DIALOGUE = (
    Row(
        "Delivery is at least once; a conditional write decides races.",
        "stores/dynamodb/store.py",
        "tests/stores/dynamodb/test_store.py::test_thirty_claimers",
    ),
    Row(
        "The key is the event's natural id, or its publisher's UUID.",
        "how-to/tasks-and-messages.md#kafka-aws-cloudevents",
        "tests/docs/test_message_keys.py::test_a_key "
        "tests/contrib/outbox/test_sending.py::TestMessages::test_ids",
    ),
    Row(
        "A duplicate is reported as success to the bus.",
        "how-to/tasks-and-messages.md#what-becomes-of-a-message",
        "tests/contrib/batches/test_messages.py::test_the_table "
        "tests/messages/test_consumer.py::test_a_duplicate_is_acknowledged",
    ),
    Row(
        "Records are kept for 30 days.",
        "reference/settings.md#ttl",
        "tests/core/test_policy.py::test_accepted tests/functions/test_calls.py::test_expiry",
        "For a day by default, and for ten years at most.",
    ),
    Row(
        "EventBridge, SNS and Lambda deliver to consumers.",
        "how-to/tasks-and-messages.md#kafka-aws-cloudevents",
        "tests/docs/test_message_keys.py::test_a_key",
    ),
)

DOCUMENTS = {
    "AWS Lambda Powertools' idempotency utility": POWERTOOLS,
    "A stateful decorator on DynamoDB": DECORATOR,
    "An essay on idempotency keys, sagas and outboxes": ESSAY,
    "An architecture with scenarios and numbers": ARCHITECTURE,
    "A dialogue on EventBridge": DIALOGUE,
}


def asked() -> str:
    """Return the documents as sections, each with a table of its rows."""
    sections = []
    for title, rows in DOCUMENTS.items():
        lines = [f"| {row.says} | {_place(row.where)} | {_shown(row)} |" for row in rows]
        sections.append(
            "\n".join(
                [f"### {title}", "", "| it says | here | shown by |", "|---|---|---|", *lines]
            )
        )
    return "\n\n".join(sections)


def _place(where: str) -> str:
    """Return a link to a heading, by its page's title and its own; or a module's path."""
    if where.endswith(".py"):
        return f"`{where}`"
    page, _, anchor = where.partition("#")
    title, *headings = re.findall(
        r"^#+ (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE
    )
    below = [heading for heading in headings if anchor and _slug(heading) == anchor][:1]
    return f"[{' → '.join([title, *below])}](../{where})"


def _slug(heading: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _shown(row: Row) -> str:
    tests = [
        f"`{name}` in `{file.removeprefix('tests/')}`"
        for file, name in map(_parts, row.shown.split())
    ]
    return "<br>".join(filter(None, [*tests, row.but]))


def _parts(test: str) -> tuple[str, str]:
    file, _, name = test.partition("::")
    return file, name
