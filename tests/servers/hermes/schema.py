"""HermesMQ's messages for the protobuf runtime, from the table of fields. Nothing of ours is used.

The descriptor is built here, so no compiler is needed and no file of theirs is copied.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MESSAGES = {
    "Produce": "topic:string priority:uint32 content_type:uint32 payload:bytes producer_id:string "
    "seq:uint64",
    "Poll": "topic:string group:string max:uint32 visibility_timeout_ms:uint64 ack_mode:string "
    "wait_ms:uint64",
    "Ack": "topic:string group:string lease_id:uint64",
    "Nack": "topic:string group:string lease_id:uint64",
    "Commit": "topic:string group:string offset:uint64",
    "CreateTopic": "topic:string",
    "DeleteTopic": "topic:string",
    "Stats": "",
    "Node": "id:uint64 peer_addr:string",
    "Bootstrap": "nodes:*Node",
    "SetRateLimit": "topic:string rate_per_sec:double burst:uint32",
    "SetRetention": "topic:string max_messages:uint64 max_age_ms:uint64",
    "Subscribe": "topic:string group:string prefetch:uint32 visibility_timeout_ms:uint64 "
    "ack_mode:string",
    "Produced": "offset:uint64",
    "Delivered": "lease_id:uint64 offset:uint64 priority:uint32 content_type:uint32 payload:bytes "
    "ts_ms:uint64",
    "Polled": "items:*Delivered",
    "Ok": "",
    "Error": "code:string message:string leader_addr:string retry_after_ms:uint64",
    "StatsResult": "last_applied:uint64 current_leader:uint64 current_term:uint64 "
    "last_log_index:uint64 is_leader:bool topics:uint64 messages:uint64 in_flight:uint64",
}
ONE_OF = {
    "Request": "produce:Produce poll:Poll ack:Ack nack:Nack commit:Commit create_topic:CreateTopic "
    "delete_topic:DeleteTopic stats:Stats bootstrap:Bootstrap set_rate_limit:SetRateLimit "
    "set_retention:SetRetention subscribe:Subscribe",
    "Response": "produced:Produced polled:Polled ok:Ok error:Error stats:StatsResult",
}
_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
    "double": _FIELD.TYPE_DOUBLE,
    "bool": _FIELD.TYPE_BOOL,
}


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="hermesmq.proto", package="hermesmq", syntax="proto3"
    )
    for name, fields in {**MESSAGES, **ONE_OF}.items():
        message = file.message_type.add(name=name)
        if name in ONE_OF:
            message.oneof_decl.add(name="kind")
        for number, field in enumerate(fields.split(), 1):
            label, _, kind = field.partition(":")
            added = message.field.add(name=label, number=number, label=_FIELD.LABEL_OPTIONAL)
            if kind.startswith("*"):
                added.label = _FIELD.LABEL_REPEATED
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type = _FIELD.TYPE_MESSAGE
                added.type_name = f".hermesmq.{kind.lstrip('*')}"
            if name in ONE_OF:
                added.oneof_index = 0
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def _made(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"hermesmq.{name}"))


Request: Any = _made("Request")
Response: Any = _made("Response")


def request(kind: str, **fields: Any) -> Any:
    """A Request of one kind. `nodes` are pairs of id and peer address."""
    made = Request()
    part = getattr(made, kind)
    part.SetInParent()
    for id, peer_addr in fields.pop("nodes", ()):
        part.nodes.add(id=id, peer_addr=peer_addr)
    for name, value in fields.items():
        setattr(part, name, value)
    return made


def frame_of(message: Any) -> bytes:
    body: bytes = message.SerializeToString()
    return len(body).to_bytes(4, "big") + body
