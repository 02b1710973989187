// The options of a topic as a form, made from the broker's own table of them.

import { html } from "../lib.js";
import { Field } from "../ui.js";

const UNITS = {
  bytes: [["B", 1], ["KiB", 1024], ["MiB", 1024 ** 2], ["GiB", 1024 ** 3]],
  seconds: [["s", 1], ["min", 60], ["h", 3600], ["d", 86400]],
};
const TEXT = { bytes: "for example 64MiB", seconds: "for example 7d", count: "", rate: "per second" };

// As it is typed: null is the empty text, "no limit".
export function typed(kind, value) {
  if (value === null || value === undefined) return "";
  if (kind === "words") return value.join(", ");
  if (kind === "yes or no") return String(value);
  if (UNITS[kind]) {
    const fit = [...UNITS[kind]].reverse().find(([, size]) => value >= size && value % size === 0);
    return fit ? `${value / fit[1]}${fit[0]}` : String(value);
  }
  return String(value);
}

export function meant(kind, text) {
  const said = text.trim();
  if (kind === "yes or no") return said === "true";
  if (said === "") return null;
  if (kind === "words") return said.split(",").map((word) => word.trim()).filter(Boolean);
  if (kind === "text" || kind === "choice") return said;
  const found = /^([0-9.]+)\s*([a-z]*)$/i.exec(said);
  if (!found) throw new Error(`${said} is not a number`);
  const units = Object.fromEntries((UNITS[kind] ?? []).map(([unit, size]) => [unit.toLowerCase(), size]));
  const unit = found[2].toLowerCase() || (kind === "bytes" ? "b" : "s");
  if (found[2] && !(unit in units)) throw new Error(`${said}: use ${Object.keys(units).join(", ") || "a number alone"}`);
  const number = Number(found[1]) * (units[unit] ?? 1);
  return kind === "count" || kind === "bytes" ? Math.round(number) : number;
}

// What was typed and is another than before.
export function changesOf(options, given, now) {
  const changes = {};
  for (const { name, kind, default: standard } of options) {
    if (!(name in given)) continue;
    const before = now ? now[name] : standard;
    let value;
    try {
      value = meant(kind, given[name]);
    } catch (error) {
      throw new Error(`${name}: ${error.message}`);
    }
    if (JSON.stringify(value) !== JSON.stringify(before ?? null)) changes[name] = value;
  }
  return changes;
}

export function OptionFields({ options, given, change, now, isNew }) {
  const set = (name, text) => change({ ...given, [name]: text });
  return html`
    <div class="optionfields">
      ${options.map(({ name, kind, meaning, choices, default: standard, is_final }) => {
        const current = now ? now[name] : standard;
        const text = given[name] ?? typed(kind, current);
        const isFixed = is_final && !isNew;
        return html`
          <${Field} key=${name} label=${name} hint=${isFixed ? `${meaning} Set when the topic was created.` : meaning}>
            ${kind === "yes or no" || kind === "choice"
              ? html`<select value=${text} disabled=${isFixed} onChange=${(event) => set(name, event.target.value)}>
                  ${kind === "choice" && (current === null || !["overflow", "storage"].includes(name)) && html`<option value="" selected=${text === ""}>none</option>`}
                  ${(kind === "choice" ? choices : ["false", "true"]).map((one) => html`<option key=${one} value=${one} selected=${text === one}>${kind === "choice" ? one : one === "true" ? "yes" : "no"}</option>`)}
                </select>`
              : name === "schema"
                ? html`<textarea rows="3" class="mono" spellcheck=${false} disabled=${isFixed} value=${text} onInput=${(event) => set(name, event.target.value)}></textarea>`
                : html`<input value=${text} placeholder=${["none", TEXT[kind]].filter(Boolean).join(", ")} disabled=${isFixed} autocomplete="off" spellcheck=${false} onInput=${(event) => set(name, event.target.value)} />`}
          <//>`;
      })}
    </div>`;
}
