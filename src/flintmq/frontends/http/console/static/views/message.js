// One message, whole: its value in a form that can be read, its headers, its control columns.

import { get, path } from "../api.js";
import { bytes, cut, time, visible } from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { FORMS, bytesOf, decoded } from "../decode.js";
import { Facts, Fault, Foreign, When, tell } from "../ui.js";

const WHOLE = 1024 * 1024;
const HEADERS_MAX = 200;

// topic: where its partition lies; isAsFar: as much of it as there is to see. A child that is a function
// gets the message as far as it was loaded.
export function MessageView({ message: given, topic, schemas, isAsFar, children }) {
  const [message, setMessage] = useState(given);
  const [form, setForm] = useState("auto");
  const [error, setError] = useState(null);
  const shown = useMemo(() => decoded(message, form, schemas), [message, form, schemas]);
  const more = async () => {
    try {
      const found = await get(`${path("topics", topic)}/messages`, { offset: message.offset, limit: 1, value_bytes: WHOLE });
      if (found.messages[0]?.offset === message.offset) setMessage(found.messages[0]);
    } catch (fault) {
      setError(fault);
    }
  };
  const headers = [
    ...Object.entries(message.headers),
    ...Object.entries(message.binary_headers).map(([name, value]) => [name, `(base64) ${value}`]),
  ];
  return html`
    <div class="message">
      <${Facts} of=${[
        ["Offset", message.offset],
        ["Partition", message.partition],
        ["Published", html`<${When} at=${message.timestamp} />`],
        ["Key", message.key === null ? "none" : html`<${Foreign} text=${message.key_encoding === "base64" ? `(base64) ${message.key}` : message.key} mono />`],
        ["Priority", message.priority],
        ["Content type", message.content_type === null ? "none" : html`<${Foreign} text=${message.content_type} />`],
        ["Expires", message.expires_at ? time(message.expires_at) : undefined],
        ["Delivered from", message.deliver_at ? time(message.deliver_at) : undefined],
        ["Size", bytes(message.size)],
      ]} />
      ${headers.length > 0 &&
      html`<table class="headers"><caption>Headers</caption><tbody>
        ${headers.slice(0, HEADERS_MAX).map(([name, value]) => html`<tr key=${name}><th scope="row"><${Foreign} text=${cut(name, 200)} mono /></th><td><${Foreign} text=${cut(value, 4000)} mono /></td></tr>`)}
      </tbody></table>
      ${headers.length > HEADERS_MAX && html`<p class="faint">… and ${headers.length - HEADERS_MAX} more headers</p>`}`}
      <div class="tools">
        <label>Show as <select value=${form} onChange=${(event) => setForm(event.target.value)}>
          ${FORMS.map((one) => html`<option key=${one} value=${one} selected=${one === form}>${one === "auto" && form === "auto" ? `auto (${shown.form})` : one}</option>`)}
        </select></label>
        ${navigator.clipboard && html`<button type="button" onClick=${() => navigator.clipboard.writeText(shown.text).then(() => tell("Copied."), () => tell("The browser did not allow copying.", "bad"))}>Copy</button>`}
        <button type="button" onClick=${() => save(message)}>Save</button>
        ${message.truncated && html`<span class="faint">the first ${bytes(bytesOf(message).length)} of ${bytes(message.size)}</span>`}
        ${message.truncated && !isAsFar && bytesOf(message).length < WHOLE / 2 && html`<button type="button" onClick=${more}>Show up to 1 MiB</button>`}
        <span class="grow"></span>
        ${typeof children === "function" ? children(message) : children}
      </div>
      ${shown.error && html`<p class="wrong" role="alert"><${Foreign} text=${shown.error} /></p>`}
      <${Fault} error=${error} />
      <pre class="value" tabindex="0" aria-label="Value"><bdi>${visible(shown.text)}</bdi></pre>
    </div>`;
}

function save(message) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytesOf(message)]));
  link.download = `message-${message.partition}-${message.offset}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

