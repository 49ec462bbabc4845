// Sentences of the diagnosis: what stands between backticks is code, as in the commands.
import { html } from "../view.js";
import { visible } from "./text.js";

// `name`: a name in the text; if it has backticks of its own, they must not get lost.
export const Prose = ({ text, name = "" }) =>
  name.includes("`")
    ? visible(text)
    : text.split("`").map((part, n) => (n % 2 ? html`<code>${visible(part)}</code>` : visible(part)));
