// Swim-lanes: a column for each place where something happens, and a row for each step, which opens to what is behind it.
//
// lanes: [{key, kind, title}]
// steps: [{key, at_ms, name, look, lane, sender, request, state, producer_id, producer_epoch, sentence,
//          sources: [{kind, title, fields, where, offset}]}]
import { html, useState } from "../view.js";
import { partitionAddress } from "./links.js";
import { Scroll } from "./scroll.js";
import { stylesheet } from "./stylesheet.js";
import { Prose, visible } from "./text.js";
import { duration, instant } from "./time.js";

await stylesheet(new URL("./lanes.css", import.meta.url));

const LANE = 32;
const ROW = 44;
// What a look means, in words beside the drawing: a colour alone would not be enough. The names of steps say the others.
const WORDS = {
  timeout: "timeout",
  takeover: "takeover",
  fenced: "fenced by an operator",
  late: "late",
  refused: "refused",
  waiting: "not answered",
};

// The time of day in UTC, to the millisecond: as in the sentences.
const timeOfDay = (ms) => (Number.isNaN(new Date(ms).getTime()) ? instant(ms) : instant(ms).slice(11));

// Each look has a shape of its own.
function Sign({ x, y, step }) {
  const shapes = {
    plain: html`<circle cx=${x} cy=${y} r="6" />`,
    open: html`<circle cx=${x} cy=${y} r="6" class="hollow" />`,
    committed: html`<circle cx=${x} cy=${y} r="8" /><path class="on" d=${`M ${x - 4} ${y} l 3 3.5 l 5 -6.5`} />`,
    aborted: html`<circle cx=${x} cy=${y} r="8" /><path class="on" d=${`M ${x - 3.5} ${y - 3.5} l 7 7 m 0 -7 l -7 7`} />`,
    timeout: html`<circle cx=${x} cy=${y} r="9" class="hollow" /><path class="line" d=${`M ${x} ${y - 6} v 6 h 5`} />`,
    takeover: html`<path d=${`M ${x - 9} ${y - 7} l 8 7 l -8 7 z m 9 0 l 8 7 l -8 7 z`} />`,
    fenced: html`<path d=${`M ${x - 8} ${y - 8} h 16 v 7 q 0 7 -8 10 q -8 -3 -8 -10 z`} />`,
    late: html`<path class="line" d=${`M ${x - 6} ${y - 6} l 12 12 m 0 -12 l -12 12`} />`,
    refused: html`<circle cx=${x} cy=${y} r="8" class="hollow" /><path class="line" d=${`M ${x - 5} ${y} h 10`} />`,
    waiting: html`<circle cx=${x} cy=${y} r="7" class="hollow dashed" />`,
  };
  if (step.name.endsWith(" marker")) {
    return html`<path class="marker" d=${`M ${x} ${y - 9} l 9 9 l -9 9 l -9 -9 z`} />`;
  }
  return shapes[step.look] ?? shapes.plain;
}

function Drawing({ lanes, step }) {
  const at = (key) => lanes.findIndex((lane) => lane.key === key) * LANE + LANE / 2;
  const has = (key) => lanes.some((lane) => lane.key === key);
  const y = ROW / 2;
  const to = at(step.lane);
  const from = step.sender !== null && has(step.sender) ? at(step.sender) : null;
  const gap = from === null ? 0 : Math.sign(to - from) * 11;
  return html`<svg class="lanes-drawing" width=${lanes.length * LANE} height=${ROW} aria-hidden="true" focusable="false">
    ${lanes.map((lane) => html`<line key=${lane.key} class="lanes-line" x1=${at(lane.key)} x2=${at(lane.key)} y1="-500" y2="500" />`)}
    ${from !== null &&
    from !== to &&
    html`<g class="lanes-arrow">
      <circle cx=${from} cy=${y} r="3" />
      <line x1=${from} x2=${to - gap} y1=${y} y2=${y} />
      <path d=${`M ${to - gap} ${y} l ${-Math.sign(gap) * 7} -4 v 8 z`} />
    </g>`}
    <g class="lanes-sign"><${Sign} x=${to} y=${y} step=${step} /></g>
  </svg>`;
}

function shown(name, value) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  if (name.endsWith("_ms") && value >= 0) return `${instant(value)} (${value})`;
  return String(value);
}

function linkTo(source) {
  if (!source.where) return null;
  const place = partitionAddress(source.where.topic, source.where.partition);
  return source.offset === null ? place : `${place}?offset=${source.offset}`;
}

function Source({ source }) {
  const link = linkTo(source);
  return html`<section class="lanes-source" data-source=${source.kind}>
    <h3>${visible(source.title)}</h3>
    <dl>
      ${Object.entries(source.fields).map(
        ([name, value]) =>
          html`<div key=${name}>
            <dt>${name.replace(/_ms$/, "").replaceAll("_", " ")}</dt>
            <dd data-field=${name}>${visible(shown(name, value))}</dd>
          </div>`,
      )}
    </dl>
    ${link && html`<a href=${link}>Show it in the log</a>`}
  </section>`;
}

function Step({ lanes, step, before, isOpen, toggle, note, name }) {
  const id = `behind ${step.key}`.replace(/[^\w-]/g, "_");
  const word = WORDS[step.look];
  const asksWithoutSource = step.request && !step.sources.some((source) => source.kind === "request");
  return html`<li
    class=${`lanes-step look-${step.look}`}
    data-key=${step.key}
    data-look=${step.look}
    data-lane=${step.lane}
    data-request=${step.request ?? ""}
    data-state=${step.state ?? ""}
  >
    <button type="button" class="lanes-row" aria-expanded=${isOpen} aria-controls=${id} onClick=${toggle}>
      <span class="lanes-time">
        ${timeOfDay(step.at_ms)}
        ${before !== null && step.at_ms >= before && html`<small>+${duration(step.at_ms - before)}</small>`}
      </span>
      <${Drawing} lanes=${lanes} step=${step} />
      <span class="lanes-text">
        <strong>${step.name}</strong>
        ${step.request && step.request !== step.name && html` <span class="lanes-chip">by ${step.request}</span>`}
        ${step.producer_epoch !== null && html` <span class="lanes-chip">epoch ${step.producer_epoch}</span>`}
        ${word && html` <span class="lanes-chip lanes-look">${word}</span>`}
        <span class="lanes-sentence"><${Prose} name=${name}>${step.sentence}<//></span>
      </span>
    </button>
    <div id=${id} class="lanes-behind" hidden=${!isOpen}>
      ${isOpen && step.sources.map((source) => html`<${Source} key=${source.title} source=${source} />`)}
      ${isOpen && asksWithoutSource && note && html`<p class="lanes-note">${step.request}: ${note}</p>`}
    </div>
  </li>`;
}

// `note` says why a step shows no request behind it; `name` is the name that the sentences are about.
export function Lanes({ lanes, steps, label, note, name }) {
  const [open, setOpen] = useState(() => new Set());
  const toggle = (key) => {
    const next = new Set(open);
    if (!next.delete(key)) next.add(key);
    setOpen(next);
  };
  return html`<${Scroll} kind="lanes" label=${label}>
    <div class="lanes-heads" aria-hidden="true">
      <span class="lanes-time"></span>
      <span class="lanes-titles">
        ${lanes.map((lane) => html`<span key=${lane.key} class=${`lanes-title lane-${lane.kind}`} title=${visible(lane.title)}>${visible(lane.title)}</span>`)}
      </span>
    </div>
    <ol class="lanes-steps">
      ${steps.map(
        (step, n) =>
          html`<${Step}
            key=${step.key}
            lanes=${lanes}
            step=${step}
            before=${n ? steps[n - 1].at_ms : null}
            isOpen=${open.has(step.key)}
            toggle=${() => toggle(step.key)}
            note=${note}
            name=${name}
          />`,
      )}
    </ol>
  <//>`;
}
