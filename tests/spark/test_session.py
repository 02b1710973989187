"""The session: how it is found, started, kept quiet and ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

import flintmq
import flintmq.spark
from flintmq.installing import remedy
from flintmq.spark.jvm import _escaped
from flintmq.spark.session import checked_pyspark, settings_for

from .fixtures import MASTER


@pytest.mark.slow
def test_importing_flintmq_spark_does_not_import_pyspark() -> None:
    code = "import sys, flintmq.spark, pyspark_flintmq; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(flintmq.MissingExtra, match=re.escape(remedy("spark"))):
        flintmq.spark.session()


def test_another_pyspark_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", types.SimpleNamespace(__version__="3.5.1"))

    with pytest.raises(flintmq.SparkUnavailable) as caught:
        checked_pyspark()

    assert str(caught.value) == (
        "flintmq.spark needs PySpark 4.2 or 4.3, but PySpark 3.5.1 is installed; run "
        "pip install 'pyspark==4.3.*'"
    )


def test_spark_connect_without_its_packages_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark")
    for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)

    with pytest.raises(flintmq.SparkUnavailable, match=r"pip install 'pyspark\[connect\]==4\.3"):
        flintmq.spark.session("sc://127.0.0.1:1")


@pytest.mark.parametrize("version", ["4.2.1", "4.3.0", "4.3.1", "4.3.0.dev1"])
def test_every_patch_of_the_right_pyspark_will_do(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", types.SimpleNamespace(__version__=version))

    assert checked_pyspark().__version__ == version


def test_where_pyspark_is_missing_automatic_registration_finds_nothing_and_does_not_raise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pyspark_flintmq

    for name in ("pyspark", "pyspark.sql.datasource"):  # the latter may be imported already
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "flintmq.spark.source", raising=False)

    assert not hasattr(pyspark_flintmq, "DefaultSource")


@pytest.mark.parametrize(
    ("master", "partitions"),
    [("local", "2"), ("local[1]", "2"), ("local[6,4]", "6"), ("local-cluster[2,3,1024]", "6")],
)
def test_a_local_master_shuffles_into_as_many_partitions_as_it_has_slots(
    master: str, partitions: str
) -> None:
    assert settings_for(master)["spark.sql.shuffle.partitions"] == partitions


def test_a_cluster_keeps_its_own_number_of_partitions_and_its_addresses() -> None:
    settings = settings_for("spark://host:7077")

    assert "spark.sql.shuffle.partitions" not in settings
    assert "spark.driver.host" not in settings


@pytest.mark.parametrize(
    ("text", "escaped"),
    [("a1", "a1"), ("a=b", r"a\u003db"), ("ü", r"\u00fc"), ("😀", r"\ud83d\ude00")],
)
def test_settings_are_written_as_java_reads_them(text: str, escaped: str) -> None:
    assert _escaped(text) == escaped


def test_a_master_that_is_no_text_is_refused() -> None:
    with pytest.raises(flintmq.InvalidRequest, match="master must be a Spark master"):
        flintmq.spark.session(2)  # type: ignore[arg-type]


# --- with Spark


def test_the_session_runs_on_the_interpreter_of_the_program(spark: Any) -> None:
    rows = spark.range(1).rdd.map(lambda _: __import__("sys").executable).collect()

    assert rows == [sys.executable]


def test_java_gets_the_options_that_spark_submit_would_give_it(spark: Any) -> None:
    arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    assert set(os.environ["SPARK_SUBMIT_OPTS"].split()) <= set(arguments.getInputArguments())


def test_asking_again_gives_the_same_session(spark: Any) -> None:
    again = flintmq.spark.session(MASTER, log_level="OFF")

    assert again.sparkContext is spark.sparkContext


def test_another_master_has_to_wait_for_the_session_to_stop(spark: Any) -> None:
    with pytest.raises(flintmq.SparkUnavailable, match="already runs on"):
        flintmq.spark.session("local[1,1]")


def test_the_source_is_known_without_a_call(spark: Any) -> None:
    with pytest.raises(Exception, match="flintmq") as caught:
        spark.range(1).write.format("flintmq").mode("append").save()

    assert "DATA_SOURCE_NOT_FOUND" not in str(caught.value)


def test_registering_twice_changes_nothing(spark: Any) -> None:
    flintmq.spark.register(spark)
    flintmq.spark.register(spark)


SCRIPT = """
import sys, flintmq.spark
spark = flintmq.spark.session("local[1]", config={"spark.driver.memory": "512m"})
assert spark.range(5).count() == 5
from flintmq.spark.session import _jvm
print(_jvm.pid, flush=True)
sys.stdin.read()
"""


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_java_ends_when_the_program_does_and_nothing_was_said(
    how: str, environment_without_java: dict[str, str]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_without_java,
        text=True,
    ) as program:
        assert program.stdout is not None
        java = int(program.stdout.readline())
        assert is_running(java)
        if how == "is killed":
            program.kill()
        output, said = program.communicate(timeout=60)
        assert (output, said) == ("", "")
        deadline = time.monotonic() + 60
        while is_running(java) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_running(java)
