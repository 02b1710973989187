// Publish a message, also one like another.

import { path, post } from "../api.js";
import { cut, visible } from "../format.js";
import { html, useState } from "../lib.js";
import { Field, FormDialog } from "../ui.js";

// "name: value" in each line.
export function headersOf(text) {
  const found = {};
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`A header is written as "name: value", not "${line}".`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).replace(/^ /, "");
  }
  return found;
}

export const linesOf = (headers) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join("\n");

export function Publish({ topic, from, onClose }) {
  const start = from
    ? { form: from.encoding === "base64" ? "base64" : "text", value: from.value, key: from.key_encoding === "text" ? from.key : "", headers: linesOf(from.headers), type: from.content_type ?? "", priority: String(from.priority) }
    : { form: "json", value: "", key: "", headers: "", type: "", priority: "0" };
  const [said, setSaid] = useState({ ...start, ttl: "", delay: "" });
  const keepsKey = from?.key_encoding === "base64";
  const binary = Object.keys(from?.binary_headers ?? {});
  const change = (name) => (event) => setSaid({ ...said, [name]: event.target.value });
  const send = async () => {
    const body = { headers: headersOf(said.headers), priority: Number(said.priority) };
    if (said.form === "json") {
      try {
        body.json = JSON.parse(said.value);
      } catch (error) {
        throw new Error(`The value is not JSON: ${error.message}`);
      }
    } else body[said.form] = said.value;
    if (said.key) body.key = said.key;
    else if (keepsKey) body.key_base64 = from.key;
    if (binary.length) body.binary_headers = from.binary_headers;
    if (said.type) body.content_type = said.type;
    if (said.ttl) body.ttl = Number(said.ttl);
    if (said.delay) body.delay = Number(said.delay);
    const receipt = await post(`${path("topics", topic.name)}/messages`, body);
    return `Published to ${receipt.topic} at offset ${receipt.offset} (${receipt.durability}).`;
  };
  return html`
    <${FormDialog} title=${from ? "Publish again" : "Publish"} label="Publish" onClose=${onClose} does=${send} wide disabled=${from?.truncated}>
      ${from?.truncated && html`<p class="wrong" role="alert">Only a part of this value is loaded. Close this and press "Show up to 1 MiB" first; to copy longer values, use flintmq copy.</p>`}
      <div class="two">
        <${Field} label="Value is">
          <select value=${said.form} onChange=${change("form")}>
            ${["json", "text", "base64"].map((one) => html`<option key=${one} value=${one} selected=${one === said.form}>${{ json: "JSON", text: "text", base64: "base64" }[one]}</option>`)}
          </select>
        <//>
        <${Field} label="Key" hint=${keepsKey ? "Empty: the binary key of the message" : undefined}><input value=${said.key} onInput=${change("key")} autocomplete="off" spellcheck=${false} /><//>
      </div>
      <${Field} label="Value"><textarea rows="8" class="mono" spellcheck=${false} value=${said.value} onInput=${change("value")} autofocus></textarea><//>
      <${Field} label="Headers" hint=${binary.length ? `name: value, one per line. Binary ones are sent as they are: ${visible(cut(binary.join(", "), 200))}` : "name: value, one per line"}><textarea rows="3" class="mono" spellcheck=${false} value=${said.headers} onInput=${change("headers")}></textarea><//>
      <div class="four">
        <${Field} label="Priority" hint="0 to 7; 7 is delivered first"><input type="number" min="0" max="7" value=${said.priority} onInput=${change("priority")} /><//>
        <${Field} label="Content type"><input value=${said.type} onInput=${change("type")} autocomplete="off" /><//>
        <${Field} label="Expires after (s)"><input type="number" min="0" step="any" value=${said.ttl} onInput=${change("ttl")} /><//>
        <${Field} label="Delay (s)"><input type="number" min="0" step="any" value=${said.delay} onInput=${change("delay")} /><//>
      </div>
    <//>`;
}
