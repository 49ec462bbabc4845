// A partition: its log as a strip, one record opened, and what readers of both isolation levels get.

import { html, useEffect, useRef, useState } from "../view.js";
import { Badge } from "../parts/badge.js";
import { txnAddress } from "../parts/links.js";
import { Safe } from "../parts/safe.js";
import { Scroll } from "../parts/scroll.js";
import { Table } from "../parts/table.js";
import { Name, counted, visible } from "../parts/text.js";
import { stylesheet } from "../parts/stylesheet.js";

await stylesheet(new URL("./partition.css", import.meta.url));

const WORDS = {
  plain: "outside any transaction",
  committed: "committed",
  aborted: "aborted",
  open: "open",
  unknown: "ended, outcome not read",
  control: "control record",
  gap: "no record",
  unreadable: "unreadable",
};
const SIGNS = { plain: "·", committed: "✓", aborted: "✕", open: "…", unknown: "?", control: "C", marker: "▮", gap: "⋯", unreadable: "⚠" };
const COLOURS = { committed: "committed", aborted: "aborted", open: "open", unknown: "fenced", marker: "marker", unreadable: "danger" };
// The words of the query that say which window is shown.
const NO_PLACE = { offset: null, time: null, first: null, before: null, record: null };
const PAGE_KEYS = { PageUp: "earlier", PageDown: "later" };

export default function Page({ data, setQuery }) {
  const goTo = (place) => setQuery({ ...NO_PLACE, ...place });
  // A window that follows the end would move away under the record that is opened, so it stays from then on.
  const open = (offset) => setQuery({ ...(data.is_following ? { first: data.first_offset } : {}), record: offset });
  const turn = (way) => {
    if (way === "earlier" && data.earlier !== null) goTo({ before: data.earlier });
    if (way === "later" && data.later !== null) goTo({ first: data.later });
  };
  return html`
    <h1>Partition <${Name}>${`${data.topic}-${data.partition}`}<//></h1>
    ${data.problems.map((problem) => html`<p class="hint">not known: ${visible(problem)}</p>`)}
    <${Whole} data=${data} />
    <${GoTo} goTo=${goTo} />
    <${Turning} data=${data} turn=${turn} goTo=${goTo} />
    ${data.remark && html`<p class="banner" role="status">${visible(data.remark)}</p>`}
    <${Strip} data=${data} open=${open} turn=${turn} />
    <${Legend} />
    ${data.opened && html`<${Opened} opened=${data.opened} />`}
    <${Readers} data=${data} open=${open} />
    <${Runs} data=${data} />
  `;
}

// `ends`: of a marker, the outcome that it gives to the records before it.
const markerName = (ends) => `${ends === "committed" ? "COMMIT" : "ABORT"} marker`;
const Kind = ({ kind, ends }) =>
  html`<${Badge} kind=${COLOURS[kind] ?? "muted"} sign=${SIGNS[kind]}>${kind === "marker" ? markerName(ends) : WORDS[kind]}<//>`;

const span = (first, last) => (first === last ? `offset ${first}` : `offsets ${first} to ${last}`);

function Txn({ id, producer, epoch = null }) {
  const who = producer !== null && html`<small>producer ${producer}${epoch === null ? "" : `, epoch ${epoch}`}</small>`;
  if (id === null) return who || "–";
  return html`<a href=${txnAddress(id)}><${Name}>${id}<//></a> ${who}`;
}

// --- the whole log ----------------------------------------------------------------------------------------

const WIDTH = 1000;

function Whole({ data }) {
  const { log_start_offset: start, last_stable_offset: stable, high_watermark: end } = data;
  const at = (offset) => (end > start ? ((offset - start) / (end - start)) * WIDTH : 0);
  const waiting = end - stable;
  const seen = Math.max(at(data.end_offset) - at(data.first_offset), 4);
  const label = `The log from offset ${start} to ${end}: the last stable offset is ${stable}, the high watermark ${end}.`;
  const first = data.open_transactions[0];
  return html`
    <figure class="whole">
      <svg viewBox="0 0 ${WIDTH} 36" preserveAspectRatio="none" role="img" aria-label=${label}>
        <defs>
          <pattern id="waiting" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="4" height="8" class="waiting-hatch" />
          </pattern>
        </defs>
        <rect class="whole-stable" x="0" y="10" width=${at(stable)} height="16" />
        <rect class="whole-waiting" x=${at(stable)} y="10" width=${WIDTH - at(stable)} height="16" />
        <rect class="whole-window" x=${Math.min(at(data.first_offset), WIDTH - seen)} y="5" width=${seen} height="26" />
        <line class="whole-lso" x1=${at(stable)} x2=${at(stable)} y1="0" y2="36" />
        <line class="whole-hw" x1=${at(end)} x2=${at(end)} y1="0" y2="36" />
      </svg>
      <figcaption>
        <dl class="facts">
          <div><dt>log start</dt><dd data-name="log-start">${start}</dd></div>
          <div class="lso"><dt>last stable offset</dt><dd data-name="lso">${stable}</dd></div>
          <div class="hw"><dt>high watermark</dt><dd data-name="hw">${end}</dd></div>
          <div><dt>waiting</dt><dd data-name="waiting">${counted(waiting, "offset")}</dd></div>
        </dl>
        ${waiting > 0 &&
        first &&
        html`<p>
          read_committed readers wait at offset ${stable} for the transaction that began at ${first.first_offset}:
          ${" "}<${Txn} id=${first.transactional_id} producer=${first.producer_id} />
          ${data.open_transactions.length > 1 && ` and ${counted(data.open_transactions.length - 1, "other")}`}
        </p>`}
      </figcaption>
    </figure>
  `;
}

// --- moving about -----------------------------------------------------------------------------------------

function GoTo({ goTo }) {
  const [offset, setOffset] = useState("");
  const [time, setTime] = useState("");
  const toOffset = (event) => {
    event.preventDefault();
    if (/^\d+$/.test(offset.trim())) goTo({ offset: offset.trim() });
  };
  const toTime = (event) => {
    event.preventDefault();
    const moment = new Date(time);
    if (!Number.isNaN(moment.getTime())) goTo({ time: moment.toISOString() });
  };
  return html`
    <div class="goto">
      <form role="search" aria-label="Go to an offset" onSubmit=${toOffset}>
        <label>Go to offset <input inputmode="numeric" pattern="[0-9]*" value=${offset}
          onInput=${(event) => setOffset(event.target.value)} name="offset" autocomplete="off" /></label>
        <button>Go</button>
      </form>
      <form role="search" aria-label="Go to a time" onSubmit=${toTime}>
        <label>Go to time (of this browser) <input type="datetime-local" step="1" value=${time}
          onInput=${(event) => setTime(event.target.value)} name="time" /></label>
        <button>Go</button>
      </form>
    </div>
  `;
}

function Turning({ data, turn, goTo }) {
  const shown = data.end_offset > data.first_offset ? span(data.first_offset, data.end_offset - 1) : "no offsets";
  return html`
    <nav class="turning" aria-label="Windows of the log">
      <button onClick=${() => goTo({ first: data.log_start_offset })} disabled=${data.earlier === null}>⇤ first</button>
      <button onClick=${() => turn("earlier")} disabled=${data.earlier === null}>← earlier</button>
      <span data-name="shown">${shown}</span>
      <button onClick=${() => turn("later")} disabled=${data.later === null}>later →</button>
      <button onClick=${() => goTo({})} aria-pressed=${String(data.is_following)}>follow the end</button>
    </nav>
  `;
}

// --- the strip --------------------------------------------------------------------------------------------

function kindOf(cell) {
  return cell.kind === "record" ? cell.outcome : cell.kind;
}

function nameOf(cell) {
  const what = cell.kind === "marker" ? markerName(cell.outcome) : WORDS[kindOf(cell)];
  const of = cell.transactional_id ?? (cell.producer_id === null ? "" : `producer ${cell.producer_id}`);
  return `offset ${cell.offset}, ${what}${of ? `, ${of}` : ""}`;
}

/** The cells and gaps of a window in the order of the log, with the two lines among them. */
function pieces(data) {
  const things = [
    ...data.cells.map((cell) => ({ at: cell.offset, cell })),
    ...data.runs
      .filter((run) => run.kind === "gap" || run.kind === "unreadable")
      .map((run) => ({ at: run.first_offset, last: run.last_offset, run })),
  ].sort((a, b) => a.at - b.at);
  const found = [];
  let isStable = data.first_offset < data.last_stable_offset;
  if (data.first_offset === data.last_stable_offset) found.push({ line: "lso" });
  for (const thing of things) {
    if (isStable && thing.at >= data.last_stable_offset) {
      found.push({ line: "lso" });
      isStable = false;
    }
    found.push(thing);
  }
  if (isStable && data.end_offset === data.last_stable_offset) found.push({ line: "lso" });
  if (data.end_offset === data.high_watermark) found.push({ line: "hw" });
  return found;
}

function Strip({ data, open, turn }) {
  const strip = useRef(null);
  const [active, setActive] = useState(null);
  const isThere = data.cells.some((cell) => cell.offset === active);
  const opened = data.opened ? data.opened.cell.offset : null;
  const reached = isThere ? active : (opened ?? data.cells.at(-1)?.offset);
  const move = (event) => {
    const offsets = data.cells.map((cell) => cell.offset);
    const at = offsets.indexOf(reached);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: offsets.length - 1 }[event.key];
    if (PAGE_KEYS[event.key]) {
      event.preventDefault();
      turn(PAGE_KEYS[event.key]);
    } else if (next !== undefined && offsets[next] !== undefined) {
      event.preventDefault();
      setActive(offsets[next]);
      strip.current.querySelector(`[data-offset="${offsets[next]}"]`).focus();
    }
  };
  if (!data.cells.length && !data.runs.length) return html`<p class="empty">The partition has no records here.</p>`;
  return html`
    <section aria-labelledby="strip-title">
      <h2 id="strip-title">The log</h2>
      <p class="hint">Arrow keys go from offset to offset, Enter opens one, Page Up and Page Down turn the window.</p>
      <div class="strip" role="group" aria-labelledby="strip-title" ref=${strip} onKeyDown=${move}>
        ${pieces(data).map((piece) => {
          if (piece.line) return html`<${Line} key=${piece.line} name=${piece.line} data=${data} />`;
          if (piece.run) return html`<${Hole} key=${`run-${piece.at}`} run=${piece.run} />`;
          const { cell } = piece;
          return html`<button
            key=${cell.offset}
            class="cell is-${kindOf(cell)} ${cell.kind === "marker" ? `ends-${cell.outcome}` : ""}"
            data-offset=${cell.offset}
            data-kind=${kindOf(cell)}
            aria-label=${nameOf(cell)}
            title=${nameOf(cell)}
            aria-current=${cell.offset === opened ? "true" : undefined}
            tabindex=${cell.offset === reached ? 0 : -1}
            onFocus=${() => setActive(cell.offset)}
            onClick=${() => open(cell.offset)}
          >
            ${cell.kind === "marker" ? (cell.outcome === "committed" ? "▮✓" : "▮✕") : SIGNS[kindOf(cell)]}
          </button>`;
        })}
      </div>
    </section>
  `;
}

function Line({ name, data }) {
  const [short, long, offset] =
    name === "lso" ? ["LSO", "last stable offset", data.last_stable_offset] : ["HW", "high watermark", data.high_watermark];
  return html`<span class="line is-${name}" data-line=${name}><abbr title=${long}>${short}</abbr> ${offset}</span>`;
}

function Hole({ run }) {
  const many = run.last_offset - run.first_offset + 1;
  const why = run.problem ?? "no records: compaction removed them, or the offsets were never used";
  return html`<span class="hole is-${run.kind}" data-kind=${run.kind} title="${span(run.first_offset, run.last_offset)}: ${why}">
    ${run.kind === "gap" ? "⋯" : "⚠"} ${counted(many, "offset")} ${run.kind === "gap" ? "gone" : "unreadable"}
  </span>`;
}

function Legend() {
  return html`<ul class="legend" aria-label="Legend">
    ${["plain", "committed", "aborted", "open", "unknown"].map(
      (kind) => html`<li><span class="cell is-${kind}" aria-hidden="true">${SIGNS[kind]}</span> ${WORDS[kind]}</li>`
    )}
    <li><span class="cell is-marker ends-committed" aria-hidden="true">▮✓</span> COMMIT marker</li>
    <li><span class="cell is-marker ends-aborted" aria-hidden="true">▮✕</span> ABORT marker</li>
  </ul>`;
}

// --- one record -------------------------------------------------------------------------------------------

function Opened({ opened }) {
  const { cell } = opened;
  const title = useRef(null);
  // On a narrow screen, the record is below the strip.
  useEffect(() => title.current.scrollIntoView({ block: "nearest" }), [cell.offset]);
  return html`
    <section class="opened" aria-labelledby="opened-title" data-offset=${cell.offset}>
      <h2 id="opened-title" ref=${title}>
        Offset ${cell.offset} <${Kind} kind=${kindOf(cell)} ends=${cell.outcome} />
      </h2>
      <p role="status">${opened.says}</p>
      <dl class="facts">
        <div><dt>transaction</dt><dd><${Txn} id=${cell.transactional_id} producer=${cell.producer_id} epoch=${cell.producer_epoch} /></dd></div>
        <div><dt>timestamp</dt><dd>${opened.time}</dd></div>
        <div><dt>batch</dt><dd>${span(opened.batch_first_offset, opened.batch_last_offset)}, ${counted(opened.size_bytes, "byte")}</dd></div>
        <div><dt>compression</dt><dd>${opened.compression}</dd></div>
        <div><dt>leader epoch</dt><dd>${opened.leader_epoch}</dd></div>
        ${opened.base_sequence !== null && html`<div><dt>first sequence</dt><dd>${opened.base_sequence}</dd></div>`}
        ${opened.coordinator_epoch !== null && html`<div><dt>coordinator epoch</dt><dd>${opened.coordinator_epoch}</dd></div>`}
      </dl>
      ${cell.kind === "record" &&
      html`
        <${Content} name="key" content=${opened.key} />
        <${Content} name="value" content=${opened.value} />
        <${Headers} opened=${opened} />
      `}
    </section>
  `;
}

function Content({ name, content }) {
  const size = content.format === "null" ? "null" : `${content.format}, ${counted(content.size_bytes, "byte")}`;
  return html`
    <h3>${name} <small>${size}</small></h3>
    ${content.format !== "null" &&
    html`<pre tabindex="0" class="content" data-name=${name}><${Safe} text=${content.text} lines /></pre>`}
    ${content.is_cut && html`<p class="note">Only the beginning is shown: the ${name} has ${counted(content.size_bytes, "byte")}.</p>`}
  `;
}

function Headers({ opened }) {
  if (!opened.header_count) return html`<h3>headers <small>none</small></h3>`;
  const left = opened.header_count - opened.headers.length;
  return html`
    <h3>headers <small>${opened.header_count}</small></h3>
    <${Scroll} label="Headers">
      <table>
        <thead><tr><th scope="col">name</th><th scope="col">value</th></tr></thead>
        <tbody>
          ${opened.headers.map(
            (header) => html`<tr>
              <th scope="row"><${Safe} text=${header.name} /></th>
              <td class="content">
                ${header.value.format === "null" ? html`<i>null</i>` : html`<${Safe} text=${header.value.text} lines />`}
                ${header.value.is_cut && html` <small>(cut: ${counted(header.value.size_bytes, "byte")})</small>`}
              </td>
            </tr>`,
          )}
        </tbody>
      </table>
    <//>
    ${left > 0 && html`<p class="note">${counted(left, "more header")} not shown.</p>`}
  `;
}

// --- readers ----------------------------------------------------------------------------------------------

function Readers({ data, open }) {
  const records = data.cells.filter((cell) => cell.kind === "record");
  if (!records.length) return null;
  return html`
    <section>
      <h2 id="readers-title">What readers get</h2>
      <${Scroll} kind="readers" label="What readers get">
        <table>
          <thead>
            <tr><th scope="col">offset</th><th scope="col">read_uncommitted</th><th scope="col">read_committed</th></tr>
          </thead>
          <tbody>
            ${records.map(
              (cell) => html`<tr key=${cell.offset} class="is-${cell.outcome}" data-reader-offset=${cell.offset}>
                <th scope="row"><button class="link" onClick=${() => open(cell.offset)}>${cell.offset}</button></th>
                <td><${Got} cell=${cell} gets=${cell.read_uncommitted} /></td>
                <td data-gets=${cell.read_committed}><${Got} cell=${cell} gets=${cell.read_committed} /></td>
              </tr>`,
            )}
          </tbody>
        </table>
      <//>
    </section>
  `;
}

function Got({ cell, gets }) {
  if (gets === "skips") return html`<i>never: aborted</i>`;
  if (gets === "waits") return html`<i>${cell.outcome === "open" ? "waits: open" : "waits: behind the last stable offset"}</i>`;
  return html`<span class="preview"><b>${cell.key === "null" ? "" : html`<${Safe} text=${cell.key} />: `}</b><${Safe} text=${cell.value} /></span>`;
}

// --- transactions -----------------------------------------------------------------------------------------

const Runs = ({ data }) => html`<section>
  <h2>Transactions of this window</h2>
  <${Table}
    caption="Neighbouring offsets of one transaction and outcome"
    rows=${data.runs}
    keyOf=${(run) => run.first_offset}
    columns=${[
      { title: "offsets", cell: (run) => (run.first_offset === run.last_offset ? run.first_offset : `${run.first_offset} – ${run.last_offset}`) },
      { title: "outcome", cell: (run) => html`<${Kind} kind=${run.kind} ends=${run.ends} />` },
      { title: "transaction", cell: (run) => (run.problem !== null ? visible(run.problem) : html`<${Txn} id=${run.transactional_id} producer=${run.producer_id} epoch=${run.producer_epoch} />`) },
    ]}
  />
</section>`;
