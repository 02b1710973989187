"""`/flintmq.js` and `/flintmq.d.ts`: the types say what the module and the broker take."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flintmq.frontends.http import models
from flintmq.frontends.http.module import text_of

TYPES, MODULE = text_of("flintmq.d.ts").decode(), text_of("flintmq.js").decode()

PAGE = """
import { connect, FlintError, Message } from "./flintmq.js";
const mq = connect("http://localhost:7601", { key: async () => "flint_x" });
async function main(): Promise<void> {
  const receipt = await mq.publish("orders", { id: 42 }, { key: "42", attempts: 3 });
  const offset: string | null = receipt.offset;
  const stream = mq.subscribe("orders", { start: "earliest", transport: "sse" });
  for await (const message of stream) {
    const one: Message = message;
    console.log(one.offset, one.json().id, one.headers["a"], stream.lastId, offset);
  }
  for await (const message of mq.subscribe("orders", { group: "billing", prefetch: 4 })) {
    await message.extend(60);
    await message.ack();
  }
  try { await connect().publish("orders", "x", { qos: 0 }); } catch (error) {
    if (error instanceof FlintError) console.log(error.kind, error.status);
  }
  // @ts-expect-error
  mq.subscribe("orders", { colour: "red" });
  // @ts-expect-error
  mq.publish("orders", "x", { qos: 2 });
}
void main();
"""


def block(text: str, opening: str) -> str:
    return text.partition(opening)[2].partition("\n}")[0]


def fields_of(interface: str) -> set[str]:
    return set(re.findall(r"^  (?:readonly )?(\w+)\??:", block(TYPES, interface), re.MULTILINE))


def test_the_options_of_the_types_are_those_of_the_broker() -> None:
    asked = set(models.StreamQuery.__struct_fields__) - {"key"}
    assert fields_of("interface SubscribeOptions {") == asked | {"transport"}
    value = {"text", "base64", "json", "producer", "sequence"}  # the module's own business
    said = set(models.Publish.__struct_fields__) - value
    assert fields_of("interface PublishOptions {") == said | {"attempts", "idempotencyKey"}
    assert fields_of("interface Receipt {") == set(models.Receipt.__struct_fields__)
    assert fields_of("class Message {") == set(models.Streamed.__struct_fields__)
    assert fields_of("class Message {") <= set(models.Streamed.__struct_fields__)


@pytest.mark.parametrize("name", ["Message", "Stream", "Connection"])
def test_every_method_of_the_types_is_in_the_module(name: str) -> None:
    declared = block(TYPES, f" {name} ") or block(TYPES, f" {name} extends")
    there = block(MODULE, f"class {name} {{")
    methods = set(re.findall(r"^  (\w+)\(", declared, re.MULTILINE))
    assert methods
    for method in methods:
        assert re.search(rf"^  (async )?{method}\(", there, re.MULTILINE), method


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("tsc") is None, reason="NOT TESTED BY TYPESCRIPT: tsc is not installed (npm)"
)
def test_typescript_understands_what_a_page_writes(tmp_path: Path) -> None:
    (tmp_path / "flintmq.d.ts").write_text(TYPES)
    (tmp_path / "page.ts").write_text(PAGE)
    done = subprocess.run(
        ["tsc", "--strict", "--noEmit", "--target", "es2022", "--module", "es2022",
         "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.asynciterable", "page.ts"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
