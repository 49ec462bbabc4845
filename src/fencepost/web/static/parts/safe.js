// Keys, values and headers of records: characters that are invisible, or that change the direction of others, are shown as
// marked escapes, so that they differ from a text that has a backslash.
import { html } from "../view.js";

const HIDDEN = /([\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs})/u;
const HIDDEN_IN_LINES = /((?![\n\t])[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs})/u;

function escaped(char) {
  const code = char.codePointAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
}

// `lines`: line breaks and tabs stay as they are.
export function Safe({ text, lines = false }) {
  const parts = text.split(lines ? HIDDEN_IN_LINES : HIDDEN);
  return html`<bdi>${parts.map((part, n) => (n % 2 ? html`<mark class="escaped">${escaped(part)}</mark>` : part))}</bdi>`;
}
