// Text from a cluster, made visible: control and direction characters are shown as escapes, as the commands do.
import { html } from "../view.js";

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

export const visible = (text) =>
  String(text).replace(HIDDEN, (char) => {
    const code = char.codePointAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });

// A name of a cluster: a topic, an id, a group. It cannot change the direction of the text around it.
export const Name = ({ children }) => html`<bdi class="name">${visible(children)}</bdi>`;

export const counted = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

// A lag, or a sum that lacks the lags of some partitions. One that is not known is not 0.
export function lag(value, unknownCount = 0) {
  if (value === null) return "unknown";
  return value.toLocaleString("en") + (unknownCount ? " or more" : "");
}

// A sentence of a diagnosis: what stands between backticks is code. The backticks of a name in it must not get lost.
export const Prose = ({ children, name = "" }) =>
  name.includes("`") ? visible(children) : visible(children)
    .split("`")
    .map((part, n, parts) => (n % 2 && n < parts.length - 1 ? html`<code class="name">${part}</code>` : n % 2 ? `\`${part}` : part));

// A command to paste into a shell.
export const Command = ({ children }) => html`<code class="command">${visible(children)}</code>`;
