// The states of a transactional id: the current one is lit, and the moves that it made are numbered. `States` is the way
// of a transaction in a line, which opens to the drawing.
import { html } from "../view.js";
import { State } from "./badge.js";
import { Scroll } from "./scroll.js";
import { stylesheet } from "./stylesheet.js";

await stylesheet(new URL("./machine.css", import.meta.url));

const SIZE = { width: 148, height: 36 };
const LOOP = { width: 26, height: 34 };

// The point where the line from the middle of a box to `toward` leaves the box.
function edgeOf(middle, toward) {
  const dx = toward.x - middle.x;
  const dy = toward.y - middle.y;
  const across = Math.abs(dx) / (SIZE.width / 2 + 2);
  const along = Math.abs(dy) / (SIZE.height / 2 + 2);
  const scale = 1 / Math.max(across, along, 0.001);
  return { x: middle.x + dx * scale, y: middle.y + dy * scale };
}

// The path of a move, and the middle of it, where its number is written.
export function pathOf(from, to, bend) {
  if (from === to) {
    const top = from.y - SIZE.height / 2 - 1;
    const path = `M ${from.x - LOOP.width / 2} ${top} c -14 ${-LOOP.height} ${LOOP.width + 14} ${-LOOP.height} ${LOOP.width} 0`;
    return { path, middle: { x: from.x, y: top - LOOP.height * 0.75 } };
  }
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const length = Math.hypot(dx, dy);
  const middle = { x: (from.x + to.x) / 2 + (dy / length) * bend, y: (from.y + to.y) / 2 - (dx / length) * bend };
  // The control point of a quadratic curve is twice as far from the line as its middle.
  const control = { x: 2 * middle.x - (from.x + to.x) / 2, y: 2 * middle.y - (from.y + to.y) / 2 };
  const start = edgeOf(from, control);
  const end = edgeOf(to, control);
  return { path: `M ${start.x} ${start.y} Q ${control.x} ${control.y} ${end.x} ${end.y}`, middle };
}

function Move({ move, places }) {
  const { path, middle } = pathOf(places[move.before], places[move.after], move.bend);
  const taken = move.steps.length > 0;
  const title = `${move.before} to ${move.after}${move.cause ? `: ${move.cause}` : ""}`;
  const number = move.steps.length > 3 ? `${move.steps[0]} … ${move.steps.at(-1)}` : move.steps.join(", ");
  return html`<g class=${taken ? "machine-move taken" : "machine-move"} data-move=${`${move.before} ${move.after}`}>
    <title>${title}</title>
    <path d=${path} marker-end=${taken ? "url(#machine-taken)" : "url(#machine-legal)"} />
    ${taken && html`<text x=${middle.x} y=${middle.y - 4} text-anchor="middle">${number}</text>`}
  </g>`;
}

function Box({ state }) {
  const kind = state.is_current ? "machine-state current" : state.was_visited ? "machine-state visited" : "machine-state";
  return html`<g class=${kind} data-state=${state.name} data-current=${state.is_current ? "yes" : "no"}>
    <rect x=${state.x - SIZE.width / 2} y=${state.y - SIZE.height / 2} width=${SIZE.width} height=${SIZE.height} rx="8" />
    <text x=${state.x} y=${state.y + 5} text-anchor="middle">${state.name}</text>
  </g>`;
}

function inWords(machine) {
  const now = machine.current ? `The state is ${machine.current}.` : "No coordinator knows the id, so it has no state.";
  const way = machine.way.length > 1 ? ` The way of this transaction: ${machine.way.join(", then ")}.` : "";
  return now + way;
}

export function Machine({ machine }) {
  const places = Object.fromEntries(machine.states.map((state) => [state.name, state]));
  // Taken moves are drawn last, so that they lie on top.
  const moves = [...machine.moves].sort((a, b) => a.steps.length - b.steps.length);
  return html`<${Scroll} kind="machine" label="State machine">
    <svg viewBox=${`0 0 ${machine.width} ${machine.height}`} role="img" aria-label=${inWords(machine)}>
      <defs>
        ${["legal", "taken"].map(
          (kind) => html`<marker
            id=${`machine-${kind}`}
            class=${`machine-head ${kind}`}
            viewBox="0 0 8 8"
            refX="7"
            refY="4"
            markerUnits="userSpaceOnUse"
            markerWidth="11"
            markerHeight="11"
            orient="auto"
          >
            <path d="M 0 0 L 8 4 L 0 8 z" />
          </marker>`,
        )}
      </defs>
      ${moves.map((move) => html`<${Move} key=${`${move.before} ${move.after}`} move=${move} places=${places} />`)}
      ${machine.states.map((state) => html`<${Box} key=${state.name} state=${state} />`)}
    </svg>
  <//>`;
}

export function States({ machine, isOpen = false }) {
  // A state that lasts has a record for each partition that was added.
  const way = machine.way.filter((state, n) => state !== machine.way[n - 1]);
  return html`<details class="states" open=${isOpen}>
    <summary>
      <span class="states-way">
        ${way.length
          ? way.map((state, n) => html`<span key=${n}>${n > 0 && html`<span class="muted">→ </span>`}<${State} name=${state} /></span>`)
          : inWords(machine)}
      </span>
      <span class="states-open">all states</span>
    </summary>
    <${Machine} machine=${machine} />
    <p class="hint">The state now is filled. The numbers are the moves of the transaction, in their order.</p>
  </details>`;
}
