"""The JSON API: one table of routes. What serves them and the OpenAPI document are made from it.

A request passes in this order: its route (404, 405), its content type (415), its key (401), the
route's rule (403), query and body (400), and only then is the broker asked. So an answer gives
nothing away to who may not have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from ...cluster_advice import Examination, RestartPlan
from ...cluster_model import ClusterStatus
from ...errors import InvalidRequest
from ...schedule_model import ScheduleState
from ...schema_model import TopicSchema
from ...webhook_model import WebhookAnswer
from . import (
    asking,
    cluster,
    consuming,
    handlers,
    models,
    outgoing,
    publishing,
    schedules,
    schemas,
    streams,
    tables,
    webhooks,
)
from .answers import JsonResponse
from .console import handlers as console
from .console import models as console_models
from .console.files import console_routes
from .console.stream import stream_samples
from .desk import ApiCall, Desk, Handler
from .faults import HttpRefusal
from .identify import access_of
from .models import NoQuery
from .module import module_routes
from .rules import (
    ADDRESS,
    ADMINISTER,
    ANY_KEY,
    BROKER,
    CONSUME,
    LOOK,
    PUBLISH,
    SEE,
    SETS,
    STREAM,
    ApiRule,
)
from .state import HttpState

PREFIX = "/api/v1"


class ApiRoute(NamedTuple):
    """One way to call the API."""

    method: str
    path: str
    summary: str
    rule: ApiRule
    response: Any
    handler: Handler
    body: Any = None
    query: Any = NoQuery
    status: int = 200
    contents: Mapping[str, Any] = {}
    """Of a handler that reads the body itself, by content type. Others take JSON."""
    headers: Any = NoQuery
    """What headers may say."""
    media: str = "application/json"
    """The content type of its answer; `text/event-stream` may be a WebSocket as well."""
    responses: tuple[Any, ...] = ()
    """What else it may answer, as JSON."""


_TOPIC = "/topics/{topic}"
_GROUP = "/topics/{topic}/groups/{group}"
_SCHEDULE = "/topics/{topic}/schedules/{schedule}"

_ONE_MESSAGE = {
    outgoing.JSON: models.Publish,
    outgoing.CLOUD_EVENT: models.CloudEvent,
    "*/*": bytes,
}

# fmt: off
ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("GET", "/overview", "Overview of the broker: version, uptime, totals.",
             BROKER, models.Overview, handlers.overview),
    ApiRoute("GET", "/me", "The name of this key, and its permissions.",
             ANY_KEY, console_models.Me, console.me),
    ApiRoute("GET", "/samples", "The broker's figures over the last hour.",
             BROKER, console_models.Samples, console.samples),
    ApiRoute("GET", "/samples/stream", "The same, live: SSE.",
             BROKER, console_models.Samples, stream_samples, media="text/event-stream"),
    ApiRoute("GET", "/figures", "All topics and groups as of the newest sample, as rows.",
             ANY_KEY, console_models.Figures, console.figures),
    ApiRoute("GET", "/events", "The newest events of the broker's log.",
             BROKER, console_models.Events, console.events, query=console_models.EventsQuery),
    ApiRoute("GET", "/settings", "Every setting: value, source, meaning.",
             BROKER, console_models.Settings, console.settings),
    ApiRoute("GET", "/topic-options", "The options of topics: meaning, default.",
             ANY_KEY, console_models.TopicOptionList, console.topic_options),
    ApiRoute("GET", "/config", "The settings in effect, without secrets.",
             BROKER, models.Config, handlers.config),
    ApiRoute("GET", "/keys", "The API keys, without secrets.",
             BROKER, models.Keys, handlers.keys),
    ApiRoute("POST", "/keys", "Create an API key. It is shown once.",
             BROKER, console_models.CreatedKey, console.create_key,
             body=console_models.CreateKey),
    ApiRoute("DELETE", "/keys/{key_id}", "Revoke an API key. Its clients are disconnected.",
             BROKER, models.Done, console.remove_key),
    ApiRoute("GET", "/connections", "Client connections, paginated.",
             BROKER, models.Connections, handlers.connections, query=models.PageQuery),
    ApiRoute("DELETE", "/connections/{connection}", "Close a connection. Its client may reconnect.",
             BROKER, models.Done, handlers.close_connection),
    ApiRoute("GET", "/cluster", "The cluster: its nodes, the leader, nodes that are down.",
             BROKER, ClusterStatus, cluster.cluster_status),
    ApiRoute("POST", "/cluster/add", "Reserve name and address for a node that will join.",
             BROKER, ClusterStatus, cluster.cluster_add, body=cluster.PlacedNode),
    ApiRoute("POST", "/cluster/remove", "Remove a node from the cluster.",
             BROKER, ClusterStatus, cluster.cluster_remove, body=cluster.NamedNode),
    ApiRoute("POST", "/cluster/replace", "Replace a lost node with an empty one.",
             BROKER, ClusterStatus, cluster.cluster_replace, body=cluster.PlacedNode),
    ApiRoute("POST", "/cluster/transfer", "Make another node the leader.",
             BROKER, ClusterStatus, cluster.cluster_transfer, body=cluster.NamedNode),
    ApiRoute("POST", "/cluster/finalize", "After an upgrade: raise the level of the cluster.",
             BROKER, ClusterStatus, cluster.cluster_finalize),
    ApiRoute("GET", "/cluster/doctor", "Problems of the cluster, with remedies.",
             BROKER, Examination, cluster.cluster_doctor),
    ApiRoute("GET", "/cluster/restart-plan", "A safe order to restart the nodes.",
             BROKER, RestartPlan, cluster.cluster_restart_plan),
    ApiRoute("GET", "/cluster/settings", "Settings that the cluster keeps for all of its nodes.",
             BROKER, cluster.KeptSettings, cluster.cluster_settings),
    ApiRoute("PUT", "/cluster/settings/{setting}", "Set something for all nodes of the cluster.",
             BROKER, cluster.KeptSettings, cluster.cluster_set, body=cluster.SettingValue),
    ApiRoute("DELETE", "/cluster/settings/{setting}", "Return to each node's own configuration.",
             BROKER, models.Done, cluster.cluster_unset),

    ApiRoute("GET", "/topics", "Topics by pattern, paginated, optionally with statistics.",
             ANY_KEY, models.Topics, handlers.topics, query=models.TopicsQuery),
    ApiRoute("GET", _TOPIC, "A topic: options, statistics, partitions, groups.",
             SEE, models.TopicPage, handlers.topic),
    ApiRoute("PUT", _TOPIC, "Create a topic. Succeeds if it already exists with these options.",
             SETS, models.Topic, handlers.create_topic, body=models.TopicChanges),
    ApiRoute("PATCH", _TOPIC, "Change options of a topic.",
             SETS, models.Topic, handlers.configure_topic, body=models.TopicChanges),
    ApiRoute("DELETE", _TOPIC, "Delete a topic and its messages.",
             ADMINISTER, models.Done, handlers.delete_topic),
    ApiRoute("POST", f"{_TOPIC}/purge", "Delete messages: all, or those before an offset.",
             ADMINISTER, models.Purged, handlers.purge_topic, body=models.Purge),
    ApiRoute("GET", f"{_TOPIC}/messages", "Read messages by offset or time. Nothing is consumed.",
             CONSUME, models.Messages, consuming.messages, query=models.MessagesQuery),
    ApiRoute("POST", f"{_TOPIC}/messages", "Publish a message, or many.",
             PUBLISH, models.Receipt, publishing.publish,
             contents={
                 outgoing.JSON: models.Publish | list[models.Publish],
                 outgoing.NDJSON[0]: models.Publish,
                 outgoing.CLOUD_EVENT: models.CloudEvent,
                 outgoing.CLOUD_EVENTS: list[models.CloudEvent],
                 "*/*": bytes,
             }, headers=models.PublishHeaders, responses=(models.Receipts,)),

    ApiRoute("GET", f"{_TOPIC}/table", "The last value of every key, paginated.",
             CONSUME, models.TablePage, tables.table, query=models.TableQuery),
    ApiRoute("GET", f"{_TOPIC}/table/{{key}}", "The last value of a key.",
             CONSUME, models.Message, tables.table_value),
    ApiRoute("PUT", f"{_TOPIC}/table/{{key}}", "Set the value of a key: publish it.",
             PUBLISH, models.Receipt, tables.set_value, contents=_ONE_MESSAGE,
             headers=models.PublishHeaders),
    ApiRoute("DELETE", f"{_TOPIC}/table/{{key}}", "Delete a key: publish a tombstone.",
             PUBLISH, models.Receipt, tables.delete_value),
    ApiRoute("POST", f"{_TOPIC}/request", "Send a request and return the first reply.",
             PUBLISH, models.Message, asking.request, query=models.RequestQuery,
             contents=_ONE_MESSAGE, headers=models.RawOptions),
    ApiRoute("POST", "/replies/{address}", "Reply to a request, at its `reply-to`.",
             ADDRESS, models.Replied, asking.reply, contents=_ONE_MESSAGE),

    ApiRoute("GET", f"{_TOPIC}/stream", "Stream messages: SSE or a WebSocket.",
             STREAM, models.Streamed, streams.stream, query=models.StreamQuery,
             headers=models.StreamHeaders, media="text/event-stream"),

    ApiRoute("GET", f"{_TOPIC}/groups", "The groups of a topic.",
             LOOK, models.Groups, handlers.groups),
    ApiRoute("GET", _GROUP, "Statistics of a group.",
             LOOK, models.GroupPage, handlers.group),
    ApiRoute("DELETE", _GROUP, "Delete a group and its progress.",
             ADMINISTER, models.Done, handlers.delete_group),
    ApiRoute("POST", f"{_GROUP}/pause", "Pause a group: it gets no messages until resumed.",
             ADMINISTER, models.Done, handlers.pause_group),
    ApiRoute("POST", f"{_GROUP}/resume", "Resume a paused group.",
             ADMINISTER, models.Done, handlers.resume_group),
    ApiRoute("POST", f"{_GROUP}/reset", "Move a group to another position.",
             ADMINISTER, models.Done, handlers.reset_group, body=models.Reset),
    ApiRoute("POST", f"{_GROUP}/reset/preview", "What a reset would do. Nothing is done.",
             LOOK, console_models.ResetPreview, console.preview_reset, body=models.Reset),
    ApiRoute("POST", f"{_GROUP}/poll", "Take messages of a group under leases.",
             CONSUME, models.Polled, consuming.poll, body=models.Poll),
    ApiRoute("POST", f"{_GROUP}/ack", "Acknowledge messages.",
             CONSUME, models.Count, consuming.ack, body=models.Settle),
    ApiRoute("POST", f"{_GROUP}/nack", "Return messages: they are delivered again.",
             CONSUME, models.Count, consuming.nack, body=models.Nack),
    ApiRoute("POST", f"{_GROUP}/reject", "Reject messages: they become dead letters.",
             CONSUME, models.Count, consuming.reject, body=models.Reject),
    ApiRoute("POST", f"{_GROUP}/extend", "Extend leases.",
             CONSUME, models.Count, consuming.extend, body=models.Extend),
    ApiRoute("GET", f"{_GROUP}/next", "Messages the group would receive next. Nothing is leased.",
             CONSUME, models.Peeked, handlers.next_messages, query=models.PeekQuery),
    ApiRoute("GET", f"{_GROUP}/in-flight", "Leased messages: since when, to which consumer.",
             LOOK, models.AllInFlight, handlers.in_flight, query=models.LimitQuery),
    ApiRoute("GET", f"{_GROUP}/dead-letters", "Dead letters of a group, paginated.",
             CONSUME, models.DeadLetters, handlers.dead_letters, query=models.DeadLettersQuery),
    ApiRoute("POST", f"{_GROUP}/dead-letters/redrive", "Return dead letters to their group.",
             ADMINISTER, models.Count, handlers.redrive, body=models.Which),
    ApiRoute("POST", f"{_GROUP}/dead-letters/{{letter}}/redrive",
             "Return one dead letter with another content.",
             ADMINISTER, models.Count, console.redrive_edited, body=console_models.EditedLetter),
    ApiRoute("POST", f"{_GROUP}/dead-letters/discard", "Delete dead letters.",
             ADMINISTER, models.Count, handlers.discard, body=models.Which),

    ApiRoute("GET", "/schedules", "All schedules, and when they are due.",
             BROKER, schedules.ScheduleList, schedules.all_schedules),
    ApiRoute("GET", f"{_TOPIC}/schedules", "The schedules of a topic.",
             ADMINISTER, schedules.ScheduleList, schedules.schedules_of_topic),
    ApiRoute("GET", _SCHEDULE, "A schedule, and when it is due.",
             ADMINISTER, ScheduleState, schedules.schedule),
    ApiRoute("PUT", _SCHEDULE, "Create or change a schedule.",
             ADMINISTER, ScheduleState, schedules.create_schedule,
             body=schedules.CreateSchedule),
    ApiRoute("DELETE", _SCHEDULE, "Delete a schedule. Its messages stay.",
             ADMINISTER, models.Done, schedules.delete_schedule),
    ApiRoute("POST", f"{_SCHEDULE}/pause", "Pause a schedule: it publishes nothing until resumed.",
             ADMINISTER, models.Done, schedules.pause_schedule),
    ApiRoute("POST", f"{_SCHEDULE}/resume", "Resume a paused schedule.",
             ADMINISTER, models.Done, schedules.resume_schedule),
    ApiRoute("POST", f"{_SCHEDULE}/run", "Publish the message of a schedule now, in addition.",
             ADMINISTER, schedules.PublishedBySchedule, schedules.run_schedule),
    ApiRoute("GET", "/webhooks", "All webhooks and how they are doing.",
             BROKER, webhooks.WebhookList, webhooks.all_webhooks),
    ApiRoute("GET", f"{_TOPIC}/webhooks", "The webhooks of a topic.",
             ADMINISTER, webhooks.WebhookList, webhooks.webhooks_of_topic),
    ApiRoute("GET", f"{_GROUP}/webhook", "A webhook: settings and state, without its secret.",
             ADMINISTER, webhooks.WebhookPage, webhooks.webhook),
    ApiRoute("PUT", f"{_GROUP}/webhook", "Send the messages of a group to a URL.",
             ADMINISTER, webhooks.CreatedWebhook, webhooks.create_webhook,
             body=webhooks.CreateWebhook),
    ApiRoute("DELETE", f"{_GROUP}/webhook", "Delete a webhook. The group stays.",
             ADMINISTER, models.Done, webhooks.delete_webhook),
    ApiRoute("POST", f"{_GROUP}/webhook/pause", "Pause a webhook. Messages wait.",
             ADMINISTER, models.Done, webhooks.pause_webhook),
    ApiRoute("POST", f"{_GROUP}/webhook/resume", "Resume a paused webhook.",
             ADMINISTER, models.Done, webhooks.resume_webhook),
    ApiRoute("POST", f"{_GROUP}/webhook/test", "Send a test request now.",
             ADMINISTER, WebhookAnswer, webhooks.test_webhook),

    ApiRoute("GET", "/schemas", "All versions of the schemas of all topics.",
             BROKER, schemas.SchemaList, schemas.all_schemas),
    ApiRoute("GET", f"{_TOPIC}/schemas", "The versions of a topic's schema.",
             ADMINISTER, schemas.SchemaList, schemas.schemas_of_topic),
    ApiRoute("POST", f"{_TOPIC}/schemas", "Add a version, if it is compatible with those before.",
             ADMINISTER, TopicSchema, schemas.add_schema, body=schemas.AddSchema),
    ApiRoute("POST", f"{_TOPIC}/schemas/check", "Check whether a version could be added.",
             ADMINISTER, schemas.SchemaVerdict, schemas.check_schema, body=schemas.AddSchema),
)
# fmt: on


class Api:
    """An ASGI application that serves the table. What goes wrong is raised: see pages.py."""

    def __init__(self, state: HttpState, routes: Sequence[ApiRoute] = ROUTES) -> None:
        self._state = state
        self._desk = Desk(state)
        self._routes: dict[tuple[str, ...], dict[str, ApiRoute]] = {}
        for route in routes:
            words = tuple((PREFIX + route.path).strip("/").split("/"))
            self._routes.setdefault(words, {})[route.method] = route
        self._by_end: dict[tuple[int, str], list[tuple[str, ...]]] = {}
        """Templates by their length and last word; `{` stands for any."""
        for words in self._routes:
            end = "{" if words[-1].startswith("{") else words[-1]
            self._by_end.setdefault((len(words), end), []).append(words)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        route, path = self._find(request)
        if request.method not in ("GET", "HEAD", "DELETE") and not route.contents:
            # Also where there is no body: a page of another site cannot send this type unasked.
            _check_content_type(request)
        access = await access_of(request, self._state)
        route.rule.check(access, path)
        query = _query(request, route.query)
        body = None if route.body is None else await _body(request, route.body)
        answer = await route.handler(self._desk, ApiCall(access, path, query, body, request))
        return answer if isinstance(answer, Response) else JsonResponse(answer, route.status)

    def _find(self, request: Request) -> tuple[ApiRoute, dict[str, str]]:
        words = path_words(request.scope)
        count = len(words)
        ends = (self._by_end.get((count, words[-1]), ()), self._by_end.get((count, "{"), ()))
        for template in chain(*ends):
            path = _match(template, words)
            if path is None:
                continue
            methods = self._routes[template]
            # The server sends no body with what HEAD is answered.
            route = methods.get("GET" if request.method == "HEAD" else request.method)
            if route is None:
                allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
                raise HttpRefusal(
                    405,
                    "MethodNotAllowed",
                    f"{request.method} is not allowed here; use {allowed}",
                    Allow=allowed,
                )
            return route, path
        raise HttpRefusal(404, "NotFound", f"not found below {PREFIX}; see /openapi.json")


def api_routes(state: HttpState) -> list[BaseRoute]:
    """What the server of the HTTP port mounts."""

    async def openapi(request: Request) -> Response:
        written = _written_document(state.version)
        return Response(written, media_type="application/json")

    page = Route("/openapi.json", openapi, methods=["GET"])
    return [ApiMount(Api(state)), page, *module_routes(), *console_routes()]


@cache
def _written_document(version: str) -> bytes:
    from .openapi import document  # loaded when somebody asks for it

    return msgspec.json.encode(document(ROUTES, version))


class ApiMount(BaseRoute):
    """Everything below /api, whatever characters are in it: what is wrong there is told in JSON."""

    def __init__(self, app: Api) -> None:
        self.app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_ours = scope["type"] == "http" and scope["path"].startswith("/api/")
        return (Match.FULL if is_ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


# --- paths


def path_words(scope: Scope) -> tuple[str, ...]:
    """The words of a path, each decoded by itself: `orders%2F0` is one word with a slash in it."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    raw = raw.partition(b"?")[0]
    try:
        return tuple(unquote_to_bytes(word).decode() for word in raw.removeprefix(b"/").split(b"/"))
    except UnicodeDecodeError:
        raise InvalidRequest("the path must be percent-encoded UTF-8") from None


def _match(template: tuple[str, ...], words: tuple[str, ...]) -> dict[str, str] | None:
    if len(template) != len(words):
        return None
    path: dict[str, str] = {}
    for wanted, word in zip(template, words, strict=True):
        if wanted.startswith("{"):
            if not word:
                return None
            path[wanted[1:-1]] = word
        elif wanted != word:
            return None
    return path


# --- requests


def _check_content_type(request: Request) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json":
        raise HttpRefusal(
            415,
            "UnsupportedMediaType",
            "requests that change something need `Content-Type: application/json`",
        )


async def _body(request: Request, kind: Any) -> Any:
    given = await request.body()
    try:
        return msgspec.json.decode(given or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"invalid body: {error}") from None


def _query(request: Request, kind: Any) -> Any:
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise InvalidRequest(f"the query has {name!r} twice")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"invalid query: {error}") from None
