// One dead letter: why it died, the message, and the way back; also with another content.

import { get, path, post } from "../api.js";
import { cut, many, time, visible } from "../format.js";
import { html, useState } from "../lib.js";
import { indented } from "../decode.js";
import { useSchemas } from "../schemas.js";
import { Facts, Field, Foreign, FormDialog, tell, useAsked } from "../ui.js";
import { MessageView } from "./message.js";
import { headersOf, linesOf } from "./publish.js";

export function Letter({ letter, where, mayChange, reload }) {
  const [isEditing, setEditing] = useState(false);
  const whole = useAsked(async (signal) => {
    if (!letter.message.truncated) return letter;
    const { dead_letters: found } = await get(where, { limit: 1, after: letter.id === "0" ? undefined : String(BigInt(letter.id) - 1n), value_bytes: 1048576 }, signal);
    return found[0]?.id === letter.id ? found[0] : letter;
  }, [letter.id]);
  const one = whole.value ?? letter;
  const topic = useAsked((signal) => get(path("topics", one.topic), undefined, signal), [one.topic]);
  const schemas = useSchemas(one.topic, topic.value?.options.schema ?? null);
  const isCut = one.message.truncated;
  const redrive = async () => {
    const { count: gone } = await post(`${where}/redrive`, { ids: [letter.id] });
    if (gone) tell("The dead letter went back to its group.");
    else tell("This dead letter no longer exists: someone else has redriven or discarded it.", "bad");
    reload();
  };
  return html`
    <article class="card letter" aria-label="Dead letter ${letter.id}">
      <h2>Why it died</h2>
      <p class="reason"><${Foreign} text=${one.reason || "no reason given"} /></p>
      <${Facts} of=${[
        ["Delivered", many(one.delivery_count, "time")],
        ["Died", time(one.time)],
        ["Came from", `${visible(cut(one.topic, 200))}${one.partition === "0" ? "" : `/${one.partition}`}, offset ${one.offset}`],
        ["Id", one.id],
      ]} />
      ${mayChange && html`<div class="tools">
        <button class="primary" onClick=${() => redrive().catch((error) => tell(error.message, "bad"))}>Redrive</button>
        <button onClick=${() => setEditing(true)} disabled=${isCut}>Edit and redrive…</button>
        ${isCut && whole.value && html`<span class="faint">Values over 1 MiB cannot be edited here.</span>`}
      </div>`}
      <h2>The message</h2>
      <${MessageView} key=${isCut} message=${one.message} topic=${one.topic} schemas=${schemas} isAsFar />
      ${isEditing && html`<${Edit} letter=${one} where=${where} onClose=${() => setEditing(false)} reload=${reload} />`}
    </article>`;
}

function Edit({ letter, where, onClose, reload }) {
  const { message } = letter;
  const isBinary = message.encoding === "base64";
  const [said, setSaid] = useState({ value: message.value, key: message.key ?? "", headers: linesOf(message.headers), type: message.content_type ?? "" });
  const change = (name) => (event) => setSaid({ ...said, [name]: event.target.value });
  const wasJson = !isBinary && jsonFault(message.value) === null;
  const fault = wasJson ? jsonFault(said.value) : null;
  const save = async () => {
    const body = { [isBinary ? "base64" : "text"]: said.value };
    if (message.key_encoding !== "base64") body.key = said.key || null;
    if (!Object.keys(message.binary_headers).length) body.headers = headersOf(said.headers);
    body.content_type = said.type || null;
    await post(`${where}/${encodeURIComponent(letter.id)}/redrive`, body);
    setTimeout(reload);
    return "The edited message went back to its group.";
  };
  return html`
    <${FormDialog} title="Edit and redrive" label="Put back" onClose=${onClose} does=${save} wide>
      <p class="faint">In one step: the dead letter is removed, and its group receives this message instead.</p>
      <p class="reason"><${Foreign} text=${letter.reason || "no reason given"} /></p>
      <${Field} label=${isBinary ? "Value (base64)" : "Value"} error=${fault && `This was JSON and is not any more: ${fault}`}>
        <textarea rows="10" class="mono" spellcheck=${false} value=${said.value} onInput=${change("value")} autofocus></textarea>
      <//>
      ${wasJson && html`<p><button type="button" class="small" disabled=${fault} onClick=${() => setSaid({ ...said, value: indented(said.value) })}>Indent JSON</button></p>`}
      <div class="two">
        <${Field} label="Key" hint=${message.key_encoding === "base64" ? "It is binary, and stays as it is." : undefined}><input value=${said.key} disabled=${message.key_encoding === "base64"} onInput=${change("key")} spellcheck=${false} autocomplete="off" /><//>
        <${Field} label="Content type"><input value=${said.type} onInput=${change("type")} spellcheck=${false} autocomplete="off" /><//>
      </div>
      <${Field} label="Headers" hint=${Object.keys(message.binary_headers).length ? "Some are binary: all of them stay as they are." : "name: value, one per line"}>
        <textarea rows="3" class="mono" spellcheck=${false} disabled=${Object.keys(message.binary_headers).length > 0} value=${said.headers} onInput=${change("headers")}></textarea>
      <//>
    <//>`;
}

function jsonFault(text) {
  if (text.length > 262144) return null; // too long to be looked at with each key
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error.message;
  }
}
