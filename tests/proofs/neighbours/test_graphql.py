"""graphene-django and strawberry themselves: a key guards mutations, and a caller without the right
gets no replay.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import graphene
import pytest
import strawberry
import strawberry.django.views
from asgiref.sync import async_to_sync
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import IntegrityError, connections, transaction
from django.http import HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from graphene_django.views import GraphQLView as GrapheneView
from graphql import ExecutionResult, GraphQLError, specified_directives
from pytest_django import Settings
from strawberry.directive import DirectiveLocation, DirectiveValue
from strawberry.django.views import AsyncGraphQLView
from strawberry.django.views import GraphQLView as StrawberryView
from strawberry.extensions import SchemaExtension
from strawberry.schema.config import StrawberryConfig
from strawberry.types import ExecutionResult as StrawberryResult

from django_idempotency import idempotent
from django_idempotency.contrib.graphql.directives import IDEMPOTENT, directive_key
from django_idempotency.contrib.graphql.operations import changes
from django_idempotency.core.records import Status
from django_idempotency.errors import ConfigurationError
from django_idempotency.models import IdempotencyRecord
from testproject.payments.models import Effect
from tests.support.factories import grant
from tests.support.observed import Observed

pytestmark = [
    pytest.mark.any_database,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"
CHARGE = "mutation ($how: String) { charge(how: $how) { id how } }"
QUERY = "{ effects }"
BOTH = "query Look { effects } mutation Pay { charge { id } }"


def pay(request: Any, how: str | None) -> int:
    """Do what `how` says, once the caller is found to be authorised."""
    if not request.user.is_staff:
        raise PermissionDenied("Staff only.")
    effect = Effect.objects.create(
        label=how or "paid", attempt=getattr(request, "idempotency", None) is not None
    )
    match how:
        case "raise":
            raise LookupError
        case "rollback":
            transaction.set_rollback(True)
            raise IntegrityError
        case "keep":
            request.idempotency.keep()
            raise LookupError
    return int(effect.pk)


# ----------------------------------------------------------------------------------------- graphene


class GrapheneCharged(graphene.ObjectType):
    id = graphene.Int()
    how = graphene.String()
    receipt = graphene.String()

    def resolve_receipt(self, info: Any) -> str:
        raise LookupError


class GrapheneCharge(graphene.Mutation):
    class Arguments:
        how = graphene.String()

    Output = GrapheneCharged

    def mutate(self, info: Any, how: str | None = None) -> GrapheneCharged:
        return GrapheneCharged(id=pay(info.context, how), how=how)


class GrapheneMutations(graphene.ObjectType):
    charge = GrapheneCharge.Field()


class GrapheneQueries(graphene.ObjectType):
    effects = graphene.Int()

    def resolve_effects(self, info: Any) -> int:
        return Effect.objects.count()


GRAPHENE = graphene.Schema(
    query=GrapheneQueries,
    mutation=GrapheneMutations,
    directives=[*specified_directives, IDEMPOTENT],
)

# --------------------------------------------------------------------------------------- strawberry


@strawberry.type
class Charged:
    id: int
    how: str | None

    @strawberry.field
    def receipt(self) -> str | None:
        raise LookupError


@strawberry.type
class Mutations:
    @strawberry.mutation
    def charge(self, info: strawberry.Info, how: str | None = None) -> Charged | None:
        return Charged(id=pay(info.context.request, how), how=how)


@strawberry.type
class AsyncMutations:
    @strawberry.mutation
    async def charge(self, info: strawberry.Info, how: str | None = None) -> Charged | None:
        user = await info.context.request.auser()
        if not user.is_staff:
            raise PermissionDenied("Staff only.")
        effect = await Effect.objects.acreate(label=how or "paid")
        await asyncio.sleep(0.2 if how == "slow" else 0)
        if how == "raise":
            raise LookupError
        return Charged(id=effect.pk, how=how)


@strawberry.type
class Queries:
    @strawberry.field
    def effects(self) -> int:
        return Effect.objects.count()


@strawberry.type
class AsyncQueries:
    @strawberry.field
    async def effects(self) -> int:
        return await Effect.objects.acount()


#: The text of queries that clients name only.
PERSISTED = {
    "two": 'mutation { a: charge { id } b: charge(how: "raise") { id } }',
    "typo": "mutation { chrage { id } }",
}


class Raising(SchemaExtension):
    """Raises after a mutation was executed."""

    def on_operation(self) -> Any:
        yield
        if self.execution_context.operation_name == "Late":
            raise LookupError


BATCHING = StrawberryConfig(batching_config={"max_operations": 5})


@strawberry.directive(locations=[DirectiveLocation.FIELD], name="idempotent")
def with_key(value: DirectiveValue[Any], key: str) -> Any:
    return value


STRAWBERRY = strawberry.Schema(
    query=Queries, mutation=Mutations, config=BATCHING, directives=[with_key]
)
ASYNC = strawberry.Schema(query=AsyncQueries, mutation=AsyncMutations, directives=[with_key])
STRAWBERRY_LATE = strawberry.Schema(query=Queries, mutation=Mutations, extensions=[Raising])
ASYNC_LATE = strawberry.Schema(query=AsyncQueries, mutation=AsyncMutations, extensions=[Raising])


class Otherwise(strawberry.Schema):
    """Executes by code of its own, which notes nothing."""

    def execute_sync(self, *args: Any, context_value: Any = None, **kwargs: Any) -> Any:
        pay(context_value.request, "otherwise")
        return StrawberryResult(data=None, errors=[GraphQLError("Failed.")])


# -------------------------------------------------------------------------------------------- views


def is_staff(request: Any, outcome: Any) -> bool:
    return bool(request.user.is_staff)


@idempotent(authorize_replay=is_staff)
class Graphene(GrapheneView):
    pass


@idempotent(authorize_replay=is_staff)
class Strawberry(StrawberryView):
    pass


@idempotent(authorize_replay=is_staff)
class MaskedGraphene(GrapheneView):
    """Hides what failed, and where; and knows the text of a persisted query."""

    @staticmethod
    def format_error(error: Any) -> dict[str, Any]:
        return {"message": "Something failed."}

    def execute_graphql_request(self, request: Any, data: Any, query: Any, *args: Any) -> Any:
        return super().execute_graphql_request(
            request, data, PERSISTED.get(data.get("id"), query), *args
        )


class Persisting:
    def parse_json(self, data: Any) -> Any:
        found = json.loads(data)
        return {"query": PERSISTED.get(found.get("id")), **found}

    def process_result(self, request: Any, result: Any) -> Any:
        return {
            "data": None,
            **({"errors": [{"message": "Something failed."}]} if result.errors else {}),
        }


class MaskedStrawberryView(Persisting, StrawberryView):
    pass


@idempotent(authorize_replay=is_staff)
class MaskedStrawberry(MaskedStrawberryView):
    """The same; its schema has an extension that raises after the work."""


@idempotent(authorize_replay=is_staff, guarantee="lease")
class MaskedAwaited(Persisting, AsyncGraphQLView):
    async def process_result(self, request: Any, result: Any) -> Any:
        return super().process_result(request, result)


@idempotent(authorize_replay=is_staff, required=True)
class Required(GrapheneView):
    pass


class Entered(PermissionRequiredMixin):
    permission_required = "auth.view_user"
    raise_exception = True


@idempotent(authorize_replay=lambda request, outcome: True)
class EnteredGraphene(Entered, GrapheneView):
    pass


@idempotent(authorize_replay=lambda request, outcome: True)
class EnteredStrawberry(Entered, StrawberryView):
    pass


class Derived(Entered, Graphene):
    """What a subclass adds in front is in front of the guard, too."""


@idempotent(authorize_replay=is_staff, keep=lambda response: True)
class Keeping(Graphene):
    """Other terms than its base."""


@idempotent(authorize_replay=is_staff, guarantee="lease")
class Awaited(AsyncGraphQLView):
    pass


SHOPIFY: dict[str, Any] = {
    "authorize_replay": is_staff,
    "key": directive_key,
    "key_format": "uuid",
    "required": True,
}


@idempotent(**SHOPIFY)
class GrapheneShop(GrapheneView):
    pass


@idempotent(**SHOPIFY)
class StrawberryShop(StrawberryView):
    pass


@idempotent(guarantee="lease", **SHOPIFY)
class AsyncShop(AsyncGraphQLView):
    pass


urlpatterns = [
    path("shop/graphene/", GrapheneShop.as_view(schema=GRAPHENE)),
    path("shop/strawberry/", StrawberryShop.as_view(schema=STRAWBERRY)),
    path("shop/async/", AsyncShop.as_view(schema=ASYNC)),
    path("graphene/", csrf_exempt(Graphene.as_view(schema=GRAPHENE))),
    path("graphene/batch/", Graphene.as_view(schema=GRAPHENE, batch=True)),
    path("graphene/entered/", EnteredGraphene.as_view(schema=GRAPHENE)),
    path("graphene/derived/", Derived.as_view(schema=GRAPHENE)),
    path("graphene/bare/", GrapheneView.as_view(schema=GRAPHENE)),
    path("strawberry/", csrf_exempt(Strawberry.as_view(schema=STRAWBERRY))),
    path(
        "strawberry/otherwise/",
        Strawberry.as_view(schema=Otherwise(query=Queries, mutation=Mutations)),
    ),
    path("strawberry/batch/", Strawberry.as_view(schema=STRAWBERRY)),
    path("strawberry/entered/", EnteredStrawberry.as_view(schema=STRAWBERRY)),
    path("strawberry/bare/", StrawberryView.as_view(schema=STRAWBERRY)),
    path("required/", Required.as_view(schema=GRAPHENE)),
    path("keeping/", Keeping.as_view(schema=GRAPHENE)),
    path("masked/graphene/", MaskedGraphene.as_view(schema=GRAPHENE)),
    path("masked/strawberry/", MaskedStrawberry.as_view(schema=STRAWBERRY_LATE)),
    path("masked/async/", MaskedAwaited.as_view(schema=ASYNC_LATE)),
    path("async/", Awaited.as_view(schema=ASYNC)),
]

both = pytest.mark.parametrize("url", ["/graphene/", "/strawberry/"])
every = pytest.mark.parametrize("url", ["/graphene/", "/strawberry/", "/async/"])
Call = Callable[..., Any]


def body(how: str | None = None, query: str = CHARGE, **more: Any) -> dict[str, Any]:
    return {"query": query, "variables": {"how": how}, **more}


@pytest.fixture
def staff(user: User) -> User:
    user.is_staff = True
    user.save()
    grant(user, User, "view_user")
    return user


@pytest.fixture
def call(staff: User) -> Call:
    """Return a function that posts JSON under a key, as a staff user."""
    client = Client()
    client.force_login(staff)

    def call(url: str, how: str | None = None, key: str | None = KEY, **more: Any) -> HttpResponse:
        headers = {} if key is None else {"Idempotency-Key": key}
        sent = more.pop("batch", None) or body(how, **more)
        return client.post(url, json.dumps(sent), content_type="application/json", headers=headers)  # type: ignore[return-value]

    return call


def effects() -> int:
    return Effect.objects.count()


def replayed(response: Any) -> bool:
    return "Idempotent-Replayed" in response


def said(response: Any) -> str:
    return str(response["Idempotency-Status"])


# ---------------------------------------------------------------------------------------- mutations


@every
def test_a_mutation_is_carried_out_once(call: Call, url: str) -> None:
    """A retry gets the same bytes, other variables are a mismatch, and another key is another
    charge.
    """
    first, retry = call(url, "a"), call(url, "a")
    assert (first.json()["data"]["charge"]["how"], said(first)) == ("a", "created")
    assert (retry.content, replayed(retry), said(retry)) == (first.content, True, "replayed")
    assert call(url, "b").json()["code"] == "request-mismatch"
    assert effects() == 1
    assert not replayed(call(url, "a", key=KEY + "2"))
    assert effects() == 2


@every
def test_a_caller_whose_right_was_withdrawn_never_sees_the_replay(
    call: Call, staff: User, url: str
) -> None:
    """A replay would skip the right that the resolver checks, so authorize_replay checks it."""
    assert call(url, "secret").json()["data"]["charge"]
    User.objects.filter(pk=staff.pk).update(is_staff=False)
    refused = call(url, "secret")
    assert (refused.status_code, refused.json()["code"]) == (403, "replay-refused")
    assert b"secret" not in refused.content
    User.objects.filter(pk=staff.pk).update(is_active=False)
    assert b"secret" not in call(url, "secret").content
    assert effects() == 1


@pytest.mark.parametrize(
    "url", ["/graphene/entered/", "/strawberry/entered/", "/graphene/derived/"]
)
def test_what_a_class_asks_for_stands_in_front_of_the_guard(
    call: Call, staff: User, url: str
) -> None:
    """A permission of the view is checked before a replay, whichever base has it."""
    assert call(url, "secret").json()["data"]["charge"]
    staff.user_permissions.clear()
    refused = call(url, "secret")
    assert (refused.status_code, replayed(refused), said(refused)) == (403, False, "refused")
    assert b"secret" not in refused.content
    assert effects() == 1


def test_a_subclass_may_have_other_terms(call: Call) -> None:
    """A subclass that is decorated again is guarded once."""
    assert call("/keeping/", "raise").json()["errors"]
    assert replayed(call("/keeping/", "raise"))
    assert effects() == 1


@both
def test_ten_at_once_are_one(staff: User, url: str) -> None:
    """There is one effect; the others get 409, or the replay."""

    def send(_: int) -> int:
        client = Client()
        client.force_login(staff)
        try:
            sent = json.dumps(body("a"))
            answer = client.post(
                url, sent, content_type="application/json", headers={"Idempotency-Key": KEY}
            )
            return answer.status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        statuses = list(pool.map(send, range(10)))
    assert effects() == 1
    assert 200 in statuses
    assert set(statuses) <= {200, 409}


# ------------------------------------------------------------------------------------------- errors


@every
def test_a_mutation_that_was_begun_keeps_its_key(call: Call, staff: User, url: str) -> None:
    """A resolver that raises may have worked before: its errors are remembered, a refusal, too."""
    for how, ran in (("raise", 1), ("a", 2)):
        call(url, how, key=f"{KEY}{how}")
        assert (replayed(call(url, how, key=f"{KEY}{how}")), effects()) == (True, ran)
    User.objects.filter(pk=staff.pk).update(is_staff=False)
    assert said(call(url, "b")) == "created"
    User.objects.filter(pk=staff.pk).update(is_staff=True)
    assert (replayed(call(url, "b")), effects()) == (True, 2)


@every
@pytest.mark.parametrize(
    "sent",
    [
        {"query": "mutation {"},
        {"query": "mutation { chrage { id } }"},
        {"query": CHARGE, "variables": {"how": [7]}},
    ],
    ids=["syntax", "field", "variables"],
)
def test_a_mutation_that_was_not_begun_frees_its_key(call: Call, url: str, sent: Any) -> None:
    """The library has refused the document or its variables: the client corrects them under the
    same key.
    """
    assert call(url, batch=sent).json()["errors"]
    assert IdempotencyRecord.objects.get().status == Status.FREE
    assert (said(call(url, "a")), effects()) == ("created", 1)


@pytest.mark.parametrize("url", ["/masked/graphene/", "/masked/strawberry/", "/masked/async/"])
@pytest.mark.parametrize(
    ("sent", "ran"),
    [
        ({"query": "mutation { charge { id receipt } }"}, 1),  # a field of the result has failed
        ({"query": "mutation Late { charge { id } }"}, 1),  # an extension has raised after the work
        ({"id": "two"}, 2),  # one field of two has failed
    ],
    ids=["masked", "extension", "persisted"],
)
def test_the_response_does_not_say_what_was_begun(
    call: Call, url: str, sent: Any, ran: int
) -> None:
    """The library does: errors without a path, from an extension, or of a query that is not in the
    request.
    """
    first, retry = call(url, batch=sent), call(url, batch=sent)
    assert (replayed(first), replayed(retry), effects()) == (False, True, ran)


@pytest.mark.parametrize("url", ["/masked/graphene/", "/masked/strawberry/", "/masked/async/"])
def test_a_persisted_query_that_is_refused_frees_its_key(call: Call, url: str) -> None:
    """Nothing was begun, although the request does not show what was asked for."""
    assert call(url, batch={"id": "typo"}).json()["errors"]
    assert (said(call(url, "a")), effects()) == ("created", 1)


def test_what_executes_otherwise_keeps_its_key(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may execute without the library's own steps: then nothing is proven."""

    def execute(self: Any, request: Any, *args: Any) -> Any:
        pay(request, "otherwise")
        return ExecutionResult(data=None, errors=[GraphQLError("Failed.", path=["charge"])])

    monkeypatch.setattr(Graphene, "execute_graphql_request", execute)
    first, retry = call("/graphene/"), call("/graphene/")
    assert (first.json()["data"], replayed(retry), effects()) == (None, True, 1)


def test_a_schema_that_executes_otherwise_keeps_its_key(call: Call) -> None:
    """Nothing is proven of it either."""
    first, retry = call("/strawberry/otherwise/"), call("/strawberry/otherwise/")
    assert (first.json()["data"], replayed(retry), effects()) == (None, True, 1)


def test_the_schema_of_the_project_is_not_changed(call: Call) -> None:
    """Other views use it, too."""
    before = vars(STRAWBERRY).copy()
    call("/strawberry/", "a")
    assert vars(STRAWBERRY) == before


@both
def test_a_resolver_may_keep_its_errors(call: Call, url: str) -> None:
    """The resolver's own setting wins."""
    assert call(url, "keep").json()["errors"]
    assert replayed(call(url, "keep"))
    assert effects() == 1


@both
def test_what_was_rolled_back_is_not_remembered(call: Call, url: str) -> None:
    """The library swallows an error that has rolled back the transaction: the key is free, and
    nothing is half done.
    """
    failed = call(url, "rollback")
    assert (bool(failed.json()["errors"]), effects()) == (True, 0)
    assert not replayed(call(url, "rollback"))
    assert IdempotencyRecord.objects.get().status == Status.FREE


def test_graphene_rolls_back_under_atomic_requests(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its set_rollback() finds our transaction in place of Django's: with and without a key,
    nothing is written.
    """
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    two = 'mutation { a: charge { id } b: charge(how: "raise") { id } }'
    for key in (None, KEY, KEY):
        failed = call("/graphene/", query=two, key=key)
        assert (bool(failed.json()["errors"]), replayed(failed), effects()) == (True, False, 0)
    assert call("/graphene/", "a").json()["data"]["charge"]
    assert replayed(call("/graphene/", "a"))


def test_graphene_with_atomic_mutations(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation has a savepoint inside of our transaction."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_MUTATIONS", True)
    assert call("/graphene/", "a").json()["data"]["charge"]
    assert replayed(call("/graphene/", "a"))
    assert effects() == 1


@both
@pytest.mark.parametrize(
    "sent",
    [b"", b"{", b"[]", b'{"query": 1}', b'{"query": "mutation {"}', b'{"query": "mutation { x }"}'],
)
def test_a_malformed_document_is_left_to_the_view(staff: User, url: str, sent: bytes) -> None:
    """The view returns 400 or errors, as without a key; the key is free."""
    client = Client()
    client.force_login(staff)

    def send(**headers: str) -> Any:
        return client.post(url, sent, content_type="application/json", headers=headers)

    bare, keyed = send(), send(**{"Idempotency-Key": KEY})
    assert (keyed.status_code, keyed.content) == (bare.status_code, bare.content)
    assert not IdempotencyRecord.objects.exclude(status=Status.FREE).exists()


# ------------------------------------------------------------------------------------------ queries


@every
def test_a_query_is_not_guarded(call: Call, url: str) -> None:
    """A query runs each time, says so, and leaves no record; in a document with both, operationName
    decides.
    """
    for query, more in ((QUERY, {}), (BOTH, {"operationName": "Look"})):
        first = call(url, query=query, **more)
        Effect.objects.create(label="between")
        second = call(url, query=query, **more)
        assert (first.json()["data"]["effects"] + 1, said(first)) == (
            second.json()["data"]["effects"],
            "unguarded",
        )
    assert not IdempotencyRecord.objects.exists()
    assert said(call(url, query=BOTH, operationName="Pay")) == "created"
    assert replayed(call(url, query=BOTH, operationName="Pay"))


def test_a_query_under_required(call: Call) -> None:
    """Mutations need a key, queries do not."""
    assert call("/required/", query=QUERY, key=None).json() == {"data": {"effects": 0}}
    refused = call("/required/", key=None)
    assert (refused.status_code, refused.json()["code"], effects()) == (400, "key-missing", 0)


def test_a_query_by_get(staff: User) -> None:
    """GET is a safe method, with and without a key."""
    client = Client()
    client.force_login(staff)
    for url in ("/graphene/", "/strawberry/"):
        answer = client.get(url, {"query": "{ effects }"}, headers={"Idempotency-Key": KEY})
        assert (answer.json()["data"], "Idempotency-Status" in answer) == ({"effects": 0}, False)


def test_graphene_prefers_the_query_of_the_address(call: Call) -> None:
    """A mutation in the URL is guarded even with a query in the body: what the view will run
    decides.
    """
    url = "/graphene/?query=mutation+{charge+{+id+}}"
    assert said(call(url, query=QUERY)) == "created"
    assert replayed(call(url, query=QUERY))
    assert effects() == 1


@pytest.mark.parametrize("url", ["/graphene/batch/", "/strawberry/batch/"])
def test_a_batch_is_guarded_as_one(call: Call, url: str) -> None:
    """One response covers the batch; a batch of queries alone is not guarded; one that failed in
    part is remembered.
    """
    mixed = [body("a"), {"query": "{ effects }"}, body("raise")]
    first = call(url, batch=mixed)
    assert [bool(result.get("errors")) for result in first.json()] == [False, False, True]
    assert replayed(call(url, batch=mixed))
    assert effects() == 2
    assert said(call(url, batch=[{"query": "{ effects }"}] * 2, key=KEY + "2")) == "unguarded"
    refused = [{"query": "{ effects }"}, {"query": "mutation {"}]
    assert said(call(url, batch=refused, key=KEY + "3")) == "released"
    # Refused as a whole, with 400, after the first was carried out.
    for nth, second in enumerate(("mutation {", None)):
        malformed = [body("a"), {"query": second}]
        call(url, batch=malformed, key=f"{KEY}4{nth}")
        assert replayed(call(url, batch=malformed, key=f"{KEY}4{nth}"))


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "view",
    [GrapheneView, StrawberryView, AsyncGraphQLView],
    ids=lambda view: view.__module__ + view.__name__,
)
def test_rights_must_be_thought_of(view: type[Any]) -> None:
    """A policy that lets a replay skip the resolvers' checks is refused at import, with what to
    type.
    """
    with pytest.raises(
        ImproperlyConfigured, match="authorize_replay=lambda request, outcome: True"
    ):
        idempotent()(view)


def test_an_async_view_needs_a_lease() -> None:
    """No transaction can span an await."""
    with pytest.raises(ImproperlyConfigured, match='guarantee="lease"'):
        idempotent(authorize_replay=is_staff)(AsyncGraphQLView)


def test_the_librarys_own_class_is_not_touched() -> None:
    """The decorated class is a subclass: another view of the project is unchanged."""
    guarded = idempotent(authorize_replay=is_staff)(GrapheneView)
    assert (guarded.__name__, hasattr(GrapheneView, "idempotency_policy")) == ("GraphQLView", False)


@pytest.mark.parametrize("url", ["/graphene/bare/", "/strawberry/bare/"])
def test_the_middleware_leaves_a_bare_view_alone(call: Call, settings: Settings, url: str) -> None:
    """The response says so: a replay would show what a resolver now refuses.

    Where keys are required nothing runs.
    """
    assert [said(call(url, "a")), said(call(url, "a")), effects()] == ["unguarded", "unguarded", 2]
    settings.IDEMPOTENCY = {"REQUIRED": True}
    with pytest.raises(ConfigurationError, match="authorize_replay"):
        call(url, "a")
    assert effects() == 2


def test_an_async_view_under_asgi(staff: User) -> None:
    """Two at once are one effect."""
    client = AsyncClient()
    client.force_login(staff)

    async def send() -> Any:
        headers = {"Idempotency-Key": KEY}
        return await client.post(
            "/async/", body("slow"), content_type="application/json", headers=headers
        )

    async def pool() -> list[int]:
        return [answer.status_code for answer in await asyncio.gather(*(send() for _ in range(5)))]

    statuses = async_to_sync(pool)()
    assert (effects(), statuses.count(200)) == (1, 1)
    assert replayed(async_to_sync(send)())


# ------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("query", "name", "expected"),
    [
        ("{ a }", None, False),
        ("subscription { a }", None, False),
        ("mutation { a }", None, True),
        (BOTH, "Look", False),
        (BOTH, "Pay", True),
        (BOTH, None, True),  # ambiguous: the view refuses it
        (BOTH, "Other", True),
        (BOTH, 7, True),
        (None, None, True),  # persisted
        ("{" * 5000, None, True),
    ],
)
def test_what_a_document_asks_for(query: Any, name: Any, expected: bool) -> None:
    """Only a proven query or subscription changes nothing."""
    assert changes(query, name) is expected


@every
def test_an_observed_mutation_runs_each_time(call: Call, url: str, observed: Observed) -> None:
    """A retry runs again, and would have been replayed, also with errors."""
    responses = [call(url, how) for how in ("raise", "raise", "a", "a", "b")]
    assert {(each.status_code, said(each)) for each in responses} == {(200, "observed")}
    assert observed.would == [
        "run",
        "replay",
        "request-mismatch",
        "request-mismatch",
        "request-mismatch",
    ]


# ------------------------------------------------------------------------------------ the directive

DIRECTIVE = (
    "mutation ($how: String, $key: String!) { charge(how: $how) @idempotent(key: $key) { id how } }"
)
shops = pytest.mark.parametrize("url", ["/shop/graphene/", "/shop/strawberry/", "/shop/async/"])


def shop(call: Call, url: str, how: str, key: str) -> Any:
    return call(url, key=None, batch={"query": DIRECTIVE, "variables": {"how": how, "key": key}})


@shops
def test_a_directive_carries_the_key(call: Call, url: str) -> None:
    """A retry gets the first result, and other variables are a mismatch; without a key it is
    refused.
    """
    first, retry = (shop(call, url, "a", key) for key in (KEY, KEY))
    assert (first.json()["data"]["charge"]["how"], said(first)) == ("a", "created")
    assert (retry.content, said(retry)) == (first.content, "replayed")
    assert shop(call, url, "b", KEY).json()["code"] == "request-mismatch"
    assert call(url, "a", key=None).json()["code"] == "key-missing"
    assert shop(call, url, "a", "not-a-uuid").json()["code"] == "key-malformed"
    assert call(url, query=QUERY, key=None).status_code == 200
    assert effects() == 1


@shops
def test_a_failed_attempt_is_remembered(call: Call, url: str) -> None:
    """Its errors are sent again: it may have done a part."""
    assert shop(call, url, "raise", KEY).json()["errors"]
    assert replayed(shop(call, url, "raise", KEY))


FIELDS = (
    'mutation { a: charge @idempotent(key: "1") { id } b: charge @idempotent(key: "2") { id } }'
)

#: What is sent → the key.
DIRECTIVES: list[tuple[Any, Any]] = [
    ({"query": DIRECTIVE, "variables": {"key": "k"}}, "k"),
    ({"query": 'mutation { charge @idempotent(key: "k") { id } }'}, "k"),
    ({"query": 'mutation ($key: String = "k") { charge @idempotent(key: $key) { id } }'}, "k"),
    (
        {
            "query": 'mutation ($key: String = "k") { charge @idempotent(key: $key) { id } }',
            "variables": {"key": "l"},
        },
        "l",
    ),
    (
        {"query": BOTH.replace("charge", 'charge @idempotent(key: "k")'), "operationName": "Pay"},
        "k",
    ),
    ({"query": FIELDS}, ["1", "2"]),  # one request, one record
    ([{"query": DIRECTIVE, "variables": {"key": "k"}}] * 2, ["k", "k"]),
    ([{"query": QUERY}, {"query": DIRECTIVE, "variables": {"key": "k"}}], "k"),
    # ---- none
    ({"query": CHARGE}, None),
    ({"query": DIRECTIVE}, None),  # without its variable
    ({"query": DIRECTIVE, "variables": {"key": ""}}, None),
    ({"query": DIRECTIVE, "variables": {"key": 7}}, None),
    ({"query": FIELDS.replace('@idempotent(key: "2")', "")}, None),  # one of two would run twice
    (
        {
            "query": 'mutation { ...f } fragment f on Mutation { charge @idempotent(key: "k") { id '
            "} }"
        },
        None,
    ),
    ({"query": 'mutation { charge { id @idempotent(key: "k") } }'}, None),  # not on the root field
    ({"query": "mutation { charge @include(if: true) { id } }"}, None),
    ({"query": QUERY}, None),
    ({"query": BOTH}, None),
    ({"query": "mutation {"}, None),
    ({"query": 7}, None),
    ({}, None),
    ("text", None),
]


@pytest.mark.parametrize(("sent", "key"), DIRECTIVES, ids=range(len(DIRECTIVES)))
def test_the_key_of_a_document(sent: Any, key: Any) -> None:
    """The directive counts on each root field of a mutation, or not at all."""
    request = RequestFactory().post("/", json.dumps(sent), content_type="application/json")
    assert directive_key(request) == key


#: A mutation with the key "url", as the query of an address.
IN_URL = "/?" + urlencode({"query": DIRECTIVE, "variables": '{"key": "url"}'})


@pytest.mark.parametrize(
    ("url", "content_type", "body", "key"),
    [
        (IN_URL, "application/json", json.dumps({}), "url"),
        (IN_URL, "application/json", json.dumps({"query": QUERY}), "url"),
        (
            IN_URL,
            "application/json",
            json.dumps({"query": DIRECTIVE, "variables": {"key": "body"}}),
            "url",
        ),
        (IN_URL, "application/x-www-form-urlencoded", "", "url"),
        (
            "/?" + urlencode({"variables": '{"key": "url"}'}),
            "application/graphql",
            DIRECTIVE,
            "url",
        ),
        (
            "/",
            "application/json",
            json.dumps({"query": FIELDS, "operationName": "null"}),
            ["1", "2"],
        ),
    ],
)
def test_the_key_of_what_graphene_runs(url: str, content_type: str, body: str, key: Any) -> None:
    """It takes the document of the address before that of the body."""
    request = RequestFactory().post(url, body, content_type=content_type)
    data = GrapheneView(schema=graphene.Schema()).parse_body(request)
    document, variables, name, _ = GrapheneView.get_graphql_params(request, data)
    assert directive_key(request) == key
    plain = RequestFactory().post(
        "/", {"query": document, "variables": json.dumps(variables), "operationName": name or ""}
    )
    assert directive_key(plain) == key


def test_the_key_of_what_strawberry_runs() -> None:
    """It does not read the address of a POST."""
    request = RequestFactory().post(IN_URL, {"query": QUERY}, content_type="application/json")
    request.resolver_match = SimpleNamespace(func=StrawberryView.as_view(schema=None))  # type: ignore[assignment]
    assert directive_key(request) is None


def test_the_key_of_a_form() -> None:
    """As graphene reads one, with its variables in JSON."""
    request = RequestFactory().post("/", {"query": DIRECTIVE, "variables": '{"key": "k"}'})
    assert directive_key(request) == "k"
    assert (
        directive_key(RequestFactory().post("/", b"\xff", content_type="application/json")) is None
    )
