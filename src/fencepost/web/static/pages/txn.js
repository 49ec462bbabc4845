// One transactional id: what to do, what happened, what it blocks, its states, and its transactions step by step.
import { html } from "../view.js";
import { State } from "../parts/badge.js";
import { Lanes } from "../parts/lanes.js";
import { partitionAddress, txnAddress } from "../parts/links.js";
import { States } from "../parts/machine.js";
import { Command, counted, Name, Prose, visible } from "../parts/text.js";
import { duration, instant } from "../parts/time.js";

const OUTCOMES = {
  registered: "no transaction has begun",
  open: "open",
  committing: "commit decided",
  aborting: "abort decided",
  committed: "committed",
  aborted: "aborted",
  removed: "the id was removed",
};
const FORGOTTEN = "the broker has forgotten this request: it keeps the last ones of each connection";
const NO_MEMORY = "the brokers of this cluster do not remember requests; the records show that it was sent";

const Fact = ({ label, children }) => html`<div><dt>${label}</dt><dd>${children}</dd></div>`;

function Facts({ data }) {
  const { txn, explanation } = data;
  if (!txn) return null;
  return html`<dl class="numbers facts">
    <${Fact} label="state"><${State} name=${txn.state} /><//>
    <${Fact} label="producer id">${txn.producer_id}<//>
    <${Fact} label="epoch">${txn.producer_epoch}<//>
    <${Fact} label="coordinator">broker ${txn.coordinator}<//>
    <${Fact} label="timeout">${duration(txn.timeout_ms)}<//>
    ${explanation.age_ms !== null && html`<${Fact} label="age">${duration(explanation.age_ms)}<//>`}
  </dl>`;
}

function ToDo({ data, act, canAct }) {
  const { actions, transactional_id: id } = data.explanation;
  return html`<section class="panel wide" aria-labelledby="to-do">
    <h2 id="to-do">What to do</h2>
    <ol class=${actions.length > 1 ? "advice" : "advice single"}>
      ${actions.map(
        (action, n) => html`<li key=${n}>
          <p><${Prose} name=${id}>${action.advice}<//></p>
          ${action.command && html`<${Command}>${action.command}<//>`}
        </li>`
      )}
    </ol>
    <${Orders} data=${data} act=${act} canAct=${canAct} />
  </section>`;
}

function Explanation({ explanation, orders, similar }) {
  return html`<section class="panel wide" aria-labelledby="explanation">
    <h2 id="explanation">Explanation</h2>
    <dl class="explained">
      ${explanation.findings.map(
        (finding, n) => html`<div key=${n}><dt>${finding.label}</dt><dd class="said"><${Prose} name=${explanation.transactional_id}>${finding.text}<//></dd></div>`
      )}
      ${orders.map(
        (order) => html`<div key=${order.at_ms} data-order=${order.at_ms}>
          <dt>done from this workbench</dt>
          <dd class="said">${instant(order.at_ms)}: <${Prose} name=${explanation.transactional_id}>${order.text}<//></dd>
        </div>`
      )}
    </dl>
    ${similar.length > 0 &&
    html`<p>Similar ids: ${similar.map((id) => html`<a key=${id} href=${txnAddress(id)}><${Name}>${id}<//></a> `)}</p>`}
    ${[...explanation.problems, ...explanation.warnings].map(
      (problem) => html`<p key=${problem} class="hint">Not known: ${visible(problem)}</p>`
    )}
  </section>`;
}

function Blocked({ blocks }) {
  if (!blocks.length) return null;
  return html`<section class="panel wide" aria-labelledby="blocks">
    <h2 id="blocks">What it blocks</h2>
    <ul class="findings">
      ${blocks.map(
        (b) => html`<li key=${`${b.topic}-${b.partition}`}>
          <a href=${partitionAddress(b.topic, b.partition)}><${Name}>${`${b.topic}-${b.partition}`}<//></a>:
          ${" "}${counted(b.waiting, "offset")} behind offset ${b.last_stable_offset}
          ${b.is_hanging && html` <strong>(hanging)</strong>`}
        </li>`
      )}
    </ul>
  </section>`;
}

function Orders({ data, act, canAct }) {
  const { txn, explanation } = data;
  if (!canAct) {
    return html`<p class="hint">To abort or fence from this page, start it with <code>--allow-actions</code>.</p>`;
  }
  // Kafka aborts a transaction from outside only by fencing its producer, so there is one button.
  const [order, title] =
    txn?.state === "Ongoing" ? ["abort", "Abort the transaction and fence its producer"] : ["fence", "Fence the producer"];
  return html`<div class="buttons orders" role="group" aria-label="Actions">
    ${txn &&
    html`<button type="button" class="dangerous" onClick=${() => act(order, title)}>${title} …</button>`}
    ${explanation.hanging.map(
      (h) => html`<button
        key=${`${h.topic}-${h.partition}-${h.producer_id}`}
        type="button"
        class="dangerous"
        onClick=${() =>
          act("abort_hanging", "Abort what hangs", {
            topic: h.topic,
            partition: h.partition,
            producer_id: h.producer_id,
            start_offset: h.start_offset,
          })}
      >
        Abort what hangs on ${visible(`${h.topic}-${h.partition}`)} …
      </button>`
    )}
  </div>`;
}

const nameOf = (round) =>
  `${instant(round.first_ms)}, epoch ${round.producer_epoch ?? "unknown"}, ${counted(round.partition_count, "partition")}: ` +
  OUTCOMES[round.outcome];

function Rounds({ timeline, setQuery }) {
  if (timeline.rounds.length < 2) return null;
  const last = timeline.rounds.at(-1).key;
  const choose = (event) => setQuery({ round: Number(event.target.value) === last ? null : event.target.value });
  return html`<div class="controls">
    <label for="round">Transaction</label>
    <select id="round" class="rounds" value=${timeline.shown} onChange=${choose}>
      ${[...timeline.rounds]
        .reverse()
        .map((round) => html`<option key=${round.key} value=${round.key}>${nameOf(round)}</option>`)}
    </select>
  </div>`;
}

function Steps({ name, timeline, setQuery }) {
  return html`<section class="panel wide" aria-labelledby="steps">
    <h2 id="steps">Step by step</h2>
    <${Rounds} timeline=${timeline} setQuery=${setQuery} />
    ${timeline.problems.map((problem) => html`<p key=${problem} class="hint">${visible(problem)}</p>`)}
    ${timeline.partitions_left_out > 0 &&
    html`<p class="hint">${counted(timeline.partitions_left_out, "more partition")} of this transaction are not drawn.</p>`}
    ${timeline.steps.length > 0
      ? html`<${Lanes}
          key=${timeline.shown}
          lanes=${timeline.lanes}
          steps=${timeline.steps}
          label="Steps of the transaction"
          name=${name}
          note=${timeline.remembers_requests ? FORGOTTEN : NO_MEMORY}
        />`
      : html`<p class="empty">The log has no record of this id.</p>`}
  </section>`;
}

export default function Page({ data, setQuery, act, canAct }) {
  return html`
    <h1>Transactional id <${Name}>${data.transactional_id}<//></h1>
    <${Facts} data=${data} />
    <div class="panels">
      <${ToDo} data=${data} act=${act} canAct=${canAct} />
      <${Explanation} explanation=${data.explanation} orders=${data.orders} similar=${data.similar} />
      <${Blocked} blocks=${data.explanation.blocks} />
      <section class="panel wide" aria-labelledby="states">
        <h2 id="states">States</h2>
        <${States} machine=${data.machine} />
      </section>
      <${Steps} name=${data.transactional_id} timeline=${data.timeline} setQuery=${setQuery} />
    </div>
  `;
}
