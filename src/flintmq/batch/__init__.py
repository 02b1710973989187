"""The record batch: the one form in which messages travel, rest and are analysed.

`format` draws it byte for byte; `RecordBatch` reads it, `BatchBuilder` makes it.
"""

from __future__ import annotations

from .builder import BatchBuilder as BatchBuilder
from .builder import absolute as absolute
from .builder import concat as concat
from .builder import lost_rows as lost_rows
from .compression import check_compression as check_compression
from .cutting import size_of_rows as size_of_rows
from .cutting import slice_batch as slice_batch
from .cutting import thin_batch as thin_batch
from .format import CONTENT_TYPES as CONTENT_TYPES
from .format import DELIVER_AT as DELIVER_AT
from .format import EXPIRY as EXPIRY
from .format import HEADERS as HEADERS
from .format import KEY_HASH as KEY_HASH
from .format import KEYS as KEYS
from .format import NOT_PLAIN as NOT_PLAIN
from .format import OBJECTS as OBJECTS
from .format import PRIORITY as PRIORITY
from .format import PRODUCER as PRODUCER
from .format import RELATIVE as RELATIVE
from .format import TIMES as TIMES
from .format import UNSTAMPED as UNSTAMPED
from .format import HeaderValue as HeaderValue
from .format import Key as Key
from .format import RowSource as RowSource
from .format import key_hash as key_hash
from .hole import HoleBatch as HoleBatch
from .hole import hole as hole
from .keys import all_have_keys as all_have_keys
from .keys import empty_rows as empty_rows
from .keys import keys_of as keys_of
from .record_batch import DecodeCache as DecodeCache
from .record_batch import LostBatch as LostBatch
from .record_batch import RecordBatch as RecordBatch
from .record_batch import decode_all as decode_all
from .record_batch import twin_of as twin_of
from .resting import RestingRows as RestingRows
