"""Errors over HTTP: which status each has, and the body they come in. One table."""

from __future__ import annotations

from ... import errors
from ...errors import FlintError
from ...net.server.publishing import Draining

STATUS: dict[type[FlintError], int] = {
    FlintError: 500,
    errors.InvalidRequest: 400,
    errors.MessageTooLarge: 413,
    errors.EncodeFailed: 400,
    errors.RoutingFailed: 400,
    errors.MissingExtra: 501,
    errors.TopicNotFound: 404,
    errors.TopicDeleted: 404,
    errors.TopicReplaced: 409,
    errors.MessagesLost: 409,
    errors.NotAuthenticated: 401,
    errors.PermissionDenied: 403,
    errors.TopicExists: 409,
    errors.TopicFull: 429,
    errors.QueueFull: 429,
    errors.OutboxFull: 429,
    errors.NotStaged: 409,
    errors.GroupNotFound: 404,
    errors.WebhookNotFound: 404,
    errors.ScheduleNotFound: 404,
    errors.DefinitionChanged: 409,
    errors.GroupExists: 409,
    errors.LeaseLost: 409,
    errors.DecodeFailed: 422,
    errors.FilterFailed: 422,
    errors.Closed: 503,
    errors.Disconnected: 503,
    errors.TlsFailed: 503,
    errors.MalformedFrame: 400,
    errors.Corrupt: 500,
    errors.UnsupportedFormat: 500,
    errors.StorageFull: 503,
    errors.StorageFailed: 503,
    errors.ObjectStorageFailed: 503,
    errors.BrokerFailed: 503,
    errors.DataDirectoryInUse: 503,
    errors.OutcomeUnknown: 504,
    errors.SparkUnavailable: 501,
    errors.ProposalRefused: 503,
    errors.NotLeader: 503,
    errors.TooMuchUncommitted: 503,
    errors.LeadershipMoving: 503,
    errors.MembershipChangeRefused: 409,
    errors.LogCompacted: 500,
    errors.LogUnavailable: 503,
    errors.MalformedRaftMessage: 400,
    errors.SnapshotDamaged: 500,
    errors.RaftInvariantBroken: 500,
    errors.DefinitionChanged: 409,
    errors.NoResponders: 404,
    errors.NoReply: 504,
    errors.NoResult: 504,
    errors.TaskFailed: 500,
    errors.TaskCancelled: 409,
    Draining: 503,
}


def status_of(error: FlintError) -> int:
    """The status of an error, or that of the nearest class above it which has one."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


class HttpRefusal(Exception):
    """A request that HTTP itself refuses, before the broker is asked."""

    def __init__(self, status: int, kind: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
