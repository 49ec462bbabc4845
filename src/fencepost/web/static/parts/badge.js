// The state of a transaction as a badge: a shape and the word, and only then a colour.
import { html } from "../view.js";
import { visible } from "./text.js";

const STATES = {
  Empty: ["muted", "○"],
  Ongoing: ["open", "◐"],
  PrepareCommit: ["committed", "◔"],
  PrepareAbort: ["aborted", "◔"],
  CompleteCommit: ["committed", "✔"],
  CompleteAbort: ["aborted", "✖"],
  PrepareEpochFence: ["fenced", "▲"],
  Dead: ["muted", "†"],
};
const SEVERITIES = { problem: ["danger", "✖"], risk: ["open", "▲"], information: ["muted", "i"] };

export const Badge = ({ kind, sign, children }) =>
  html`<span class="badge ${kind}"><span aria-hidden="true">${sign}</span> ${children}</span>`;

export function State({ name }) {
  const [kind, sign] = STATES[name] ?? ["muted", "?"];
  return html`<${Badge} kind=${kind} sign=${sign}>${visible(name)}<//>`;
}

export function Severity({ name }) {
  const [kind, sign] = SEVERITIES[name] ?? ["muted", "?"];
  return html`<${Badge} kind=${kind} sign=${sign}>${name}<//>`;
}
