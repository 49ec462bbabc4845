// A demo, step by step: next, play, pause; each step with its requests, states and records.
import { html, useEffect, useRef, useState } from "../view.js";
import { Scroll } from "../parts/scroll.js";
import { stylesheet } from "../parts/stylesheet.js";
import { Drawing, Records, Refused, Rpcs, Txns, useLeaving } from "./learn-parts.js";

await stylesheet(new URL("./learn.css", import.meta.url));

const STATUS = {
  ready: "Ready. Next begins the story.",
  working: "The next step is being done …",
  paused: "Paused after a step.",
  done: "The story is over.",
  failed: "The demo failed.",
  closed: "The run was closed.",
};

export default function Demo({ data, query, setQuery, actNow }) {
  const { run } = data;
  const [problem, setProblem] = useState(null);
  const [isSent, setIsSent] = useState(false);
  useLeaving(actNow, { run: query.run });
  const send = async (name, body = {}) => {
    setProblem(null);
    setIsSent(true);
    try {
      return await actNow(name, { ...body, run: query.run });
    } catch (error) {
      setProblem(error.problem ?? { error: error.message });
      return null;
    } finally {
      setIsSent(false);
    }
  };
  const start = async () => {
    if (run) await send("close");
    const answer = await send("start");
    if (answer) setQuery({ run: answer.run });
  };
  const close = async () => {
    await send("close");
    setQuery({ run: null });
  };
  const canGoOn = run && ["ready", "paused"].includes(run.status);
  const isOver = run && ["done", "failed", "closed"].includes(run.status);
  return html`
    <p><a href="/learn">Learn</a></p>
    <h1>${data.name}: ${data.title}</h1>
    <p class="learn-about">${data.about}</p>
    ${data.why_not && html`<p class="learn-missing" role="alert">It cannot play here: ${data.why_not}</p>`}
    ${data.ended && html`<p class="learn-missing" role="alert">This run is not here any more: ${data.ended}.</p>`}
    <${Refused} problem=${problem} />
    <div class="learn-bar" role="toolbar" aria-label="The run">
      ${!run &&
      !data.why_not &&
      html`<button class="learn-primary" type="button" disabled=${isSent} onClick=${start}>Start</button>`}
      ${run &&
      !isOver &&
      html`
        <button class="learn-primary" type="button" disabled=${!canGoOn || run.playing} onClick=${() => send("next")}>Next</button>
        ${run.playing
          ? html`<button type="button" onClick=${() => send("pause")}>Pause</button>`
          : html`<button type="button" disabled=${!canGoOn} onClick=${() => send("play")}>Play</button>`}
      `}
      ${run &&
      html`
        <button type="button" disabled=${isSent} onClick=${start}>Start over</button>
        <button type="button" disabled=${isSent} onClick=${close}>Close</button>
      `}
      ${run &&
      html`<span class="learn-status" role="status">${STATUS[run.status]}${run.counted && ` ${run.counted[0]} of ${run.counted[1]} refunds.`}</span>`}
    </div>
    ${run &&
    html`<div class="learn-run">
      <div class="learn-words"><${Steps} steps=${run.steps} /></div>
      ${run.drawing && html`<div class="learn-drawing"><${Drawing} drawing=${run.drawing} /></div>`}
      ${run.steps.length > 0 &&
      html`<section class="learn-now" aria-label=${`Step ${run.steps.length} in detail`}><${Step} step=${run.steps.at(-1)} /></section>`}
    </div>`}
    ${run && run.failure && html`<p class="learn-missing" role="alert">${run.failure.problem} (${run.failure.hint})</p>`}
    ${run && run.report && html`<${Report} report=${run.report} />`}
  `;
}

// The words of all steps. The newest step comes with its words alone: its tables follow the drawing.
function Steps({ steps }) {
  const last = useRef(null);
  useEffect(() => last.current?.scrollIntoView({ block: "nearest" }), [steps.length]);
  if (!steps.length) return null;
  const words = (step) => html`<span class="learn-number">Step ${step.number}</span> <span class="learn-sentence">${step.sentence}</span>`;
  return html`
    <h2 id="learn-steps">Steps</h2>
    <ol class="learn-steps" aria-labelledby="learn-steps">
      ${steps.map((step) =>
        step.number === steps.length
          ? html`<li key=${step.number} ref=${last} class="learn-step learn-step-now">
              ${words(step)} ${step.lines.length > 0 && html`<pre class="learn-lines">${step.lines.join("\n")}</pre>`}
            </li>`
          : html`<li key=${step.number} class="learn-step">
              <details>
                <summary>${words(step)}</summary>
                ${step.lines.length > 0 && html`<pre class="learn-lines">${step.lines.join("\n")}</pre>`}
                <${Step} step=${step} />
              </details>
            </li>`
      )}
    </ol>
  `;
}

function Step({ step }) {
  return html`
    <div class="learn-details">
      ${step.problem && html`<p class="learn-missing">${step.problem}</p>`}
      ${step.states_on_disk
        ? html`
            <p>
              The broker does not run. On disk:${" "}
              ${Object.entries(step.states_on_disk).map(([id, state]) => html`<span key=${id}><code>${id}</code> is <b>${state}</b>. </span>`)}
            </p>
          `
        : html`
            <${Rpcs} rpcs=${step.rpcs} step=${step.number} without=${step.without_rpcs} />
            <${Records} records=${step.records} step=${step.number} />
            <${Txns} txns=${step.txns} />
          `}
    </div>
  `;
}

function Report({ report }) {
  return html`
    <section aria-labelledby="learn-report">
      <h2 id="learn-report">What came out</h2>
      ${report.sections.map(
        (section, index) => html`
          <section key=${index}>
            <h3>${section.title}</h3>
            ${section.story.map((line) => html`<p key=${line}>${line}</p>`)}
            ${section.table.length > 0 && html`<${Table} rows=${section.table} label=${section.title} />`}
            <ul class="learn-checks">
              ${section.checks.map(
                (check) => html`
                  <li key=${check.claim} class=${check.holds ? "learn-holds" : "learn-fails"}>
                    <b>${check.holds ? "holds" : "fails"}</b>: ${check.claim}
                  </li>
                `,
              )}
            </ul>
          </section>
        `,
      )}
    </section>
  `;
}

function Table({ rows, label }) {
  const columns = Object.keys(rows[0]);
  return html`
    <${Scroll} kind="learn-scroll" label=${label}>
      <table>
        <thead>
          <tr>
            ${columns.map((column) => html`<th key=${column} scope="col">${column}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${rows.map((row, index) => html`<tr key=${index}>${columns.map((column) => html`<td key=${column}>${String(row[column])}</td>`)}</tr>`)}
        </tbody>
      </table>
    <//>
  `;
}
