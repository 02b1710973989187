// A filter with what can be said next, by what the messages have, and what is wrong with it, in place.

import { html, useMemo, useState } from "../lib.js";
import { Foreign } from "../ui.js";

const NAMES = ["key", "offset", "priority", "timestamp", "content_type", "size", "topic", "partition", "headers.", "value.", "not ", "exists(", "contains(", "startswith(", "lower(", "len("];
const OPERATORS = ["== ", "!= ", "> ", ">= ", "< ", "<= ", "in [", "not in [", "is None ", "is not None "];
const JOINTS = ["and ", "or "];
const SAMPLES = 20;
const DEEP = 3;
const SHOWN = 10;

// What may follow the text: {head, options}, where each option goes behind the head.
export function completions(text, fields) {
  const [, head, word] = /^(.*?)("[^"]*|[=!<>]+|[\w.]*)$/s.exec(text);
  const before = head.trimEnd();
  const compared = /([\w.]+)\s*(?:==|!=|[<>]=?|in\s*\[)$/.exec(before);
  let options;
  if (compared) options = [...(fields.get(compared[1]) ?? [])].map((one) => `${one} `);
  else if (/[\w)\]"']$/.test(before) && !/\b(?:and|or|not|in)$/.test(before))
    options = /(?:==|!=|[<>]=?|\bin\b|\bis\b)\s*[^\s]+$/.test(before) || /None$/.test(before) ? JOINTS : [...OPERATORS, ...JOINTS];
  else options = [...new Set([...fields.keys(), ...NAMES])];
  return { head, options: options.filter((one) => one.startsWith(word) && one.trim() !== word).slice(0, SHOWN) };
}

// The fields that the messages have, and some of their values as they are written in a filter.
export function fieldsOf(messages) {
  const found = new Map();
  const add = (name, value) => {
    const known = found.get(name) ?? found.set(name, new Set()).get(name);
    const isShort = typeof value === "string" && value.length <= 40 && !/["\\\n]/.test(value);
    if (known.size < SHOWN && (isShort || Number.isFinite(value))) known.add(JSON.stringify(value));
  };
  const walk = (name, value, depth) => {
    if (value && typeof value === "object" && !Array.isArray(value)) {
      if (depth < DEEP) for (const [one, inner] of Object.entries(value)) if (/^[A-Za-z_]\w*$/.test(one)) walk(`${name}.${one}`, inner, depth + 1);
    } else add(name, value);
  };
  for (const message of messages.slice(0, SAMPLES)) {
    walk("headers", message.headers, 0);
    if (message.key !== null && message.key_encoding === "text") add("key", message.key);
    if (message.encoding !== "text" || message.truncated) continue;
    try {
      const value = JSON.parse(message.value);
      if (value && typeof value === "object") walk("value", value, 0);
    } catch { /* no JSON */ }
  }
  return new Map([...found].sort(([one], [other]) => (one < other ? -1 : 1)));
}

export function FilterInput({ text, setText, error, samples }) {
  const fields = useMemo(() => fieldsOf(samples ?? []), [samples]);
  const [isOpen, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const { head, options } = completions(text, fields);
  const shows = isOpen && options.length > 0;
  const take = (option) => {
    setText(head + option);
    setActive(-1);
  };
  const type = (event) => {
    setText(event.target.value);
    setOpen(true);
    setActive(-1);
  };
  const pressed = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setOpen(true);
      setActive(Math.max(-1, Math.min(options.length - 1, active + step)));
    } else if (event.key === "Enter" && shows && active >= 0) {
      event.preventDefault();
      take(options[active]);
    } else if (event.key === "Escape" && shows) {
      event.preventDefault();
      event.stopPropagation();
      setOpen(false);
    } else if (event.key === "Enter") setOpen(false);
  };
  return html`
    <div class="filterbox">
      <input class="filter mono" data-search aria-label="Filter" placeholder='Filter: value.total > 100 and headers.region == "eu"'
        value=${text} onInput=${type} onKeyDown=${pressed} onFocus=${() => setOpen(true)} onBlur=${() => setOpen(false)} autocomplete="off" spellcheck=${false}
        role="combobox" aria-autocomplete="list" aria-expanded=${shows} aria-controls="filter-options" aria-activedescendant=${shows && active >= 0 ? `filter-option-${active}` : undefined}
        aria-invalid=${error ? "true" : undefined} aria-describedby=${error ? "filter-wrong" : undefined} />
      <ul class="options mono" id="filter-options" role="listbox" aria-label="What may follow" hidden=${!shows}>
        ${options.map((one, at) => html`<li key=${one} id="filter-option-${at}" role="option" aria-selected=${at === active} onMouseDown=${(event) => { event.preventDefault(); take(one); }}><${Foreign} text=${one} /></li>`)}
      </ul>
      ${error && html`<small id="filter-wrong" class="wrong" role="alert"><${Foreign} text=${error.message} /></small>`}
    </div>`;
}
