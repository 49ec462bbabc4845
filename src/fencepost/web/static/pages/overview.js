// The cluster at a glance.
import { html } from "../view.js";
import { Severity, State } from "../parts/badge.js";
import { groupAddress, partitionAddress, txnAddress } from "../parts/links.js";
import { Plot } from "../parts/plot.js";
import { Table } from "../parts/table.js";
import { Command, Name, Prose, counted, lag, visible } from "../parts/text.js";
import { duration } from "../parts/time.js";

const Panel = ({ title, id, isWide, children }) => html`<section class="panel ${isWide ? "wide" : ""}" aria-labelledby=${id}>
  <h2 id=${id}>${title}</h2>
  ${children}
</section>`;

const Figure = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

const TxnLink = ({ id }) => html`<a href=${txnAddress(id)}><${Name}>${id}<//></a>`;
const PartitionLink = ({ topic, partition }) =>
  html`<a href=${partitionAddress(topic, partition)}><${Name}>${`${topic}-${partition}`}<//></a>`;

function Findings({ data }) {
  if (data.doctor_problem) return html`<p class="hint">not known: ${visible(data.doctor_problem)}</p>`;
  if (!data.doctor) return html`<p class="empty">looking …</p>`;
  const { findings, problems } = data.doctor;
  return html`<ol class="findings">
      ${findings.map(
        (finding) => html`<li>
          <p><${Severity} name=${finding.severity} /> <strong><${Prose}>${finding.summary}<//></strong></p>
          <p><${Prose}>${finding.detail}<//></p>
          ${finding.command && html`<${Command}>${finding.command}<//>`}
          ${finding.transactional_ids.length > 0 &&
          html`<p>${finding.transactional_ids.slice(0, 5).map((id) => html`<${TxnLink} id=${id} /> `)}</p>`}
        </li>`
      )}
    </ol>
    ${!findings.length && !problems.length && html`<p class="committed">✔ nothing is wrong</p>`}
    ${problems.map((problem) => html`<p class="hint">not known: ${visible(problem)}</p>`)}`;
}

const bandName = (bands, n) => {
  const { below_ms: below } = bands[n];
  if (n === 0) return `under ${duration(below)}`;
  const from = duration(bands[n - 1].below_ms);
  return below == null ? `${from} and more` : `${from} to ${duration(below)}`;
};

// A bar beside its number.
const Bar = ({ share, kind = "open" }) => html`<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
  <rect width="100" height="4" class="fill-muted" opacity="0.2" />
  <rect width=${Math.max(share * 100, share > 0 ? 0.5 : 0)} height="4" class=${`fill-${kind}`} />
</svg>`;

function Ages({ data }) {
  const most = Math.max(...data.ages.map((band) => band.count), 1);
  return html`<ul class="bars">
      ${data.ages.map(
        (band, n) => html`<li>
          <span class="what"><span>${bandName(data.ages, n)}</span><span class="number">${band.count}</span></span>
          <${Bar} share=${band.count / most} />
        </li>`
      )}
    </ul>
    <${Table}
      caption="The oldest open transactions"
      empty="no transaction is open"
      rows=${data.oldest}
      keyOf=${(row) => row.transactional_id}
      columns=${[
        { title: "transactional id", cell: (row) => html`<${TxnLink} id=${row.transactional_id} />` },
        { title: "state", cell: (row) => html`<${State} name=${row.state} />` },
        { title: "age", isNumber: true, cell: (row) => (row.age_ms == null ? "" : duration(row.age_ms)) },
        { title: "of its timeout", isNumber: true, cell: (row) => (row.timeout_share == null ? "" : `${Math.round(row.timeout_share * 100)} %`) },
      ]}
    />
    ${data.open_count > data.oldest.length && html`<p><a href="/txns?state=open">all ${counted(data.open_count, "open transaction")}</a></p>`}`;
}

function Gaps({ data }) {
  const most = Math.max(...data.gaps.map((row) => row.waiting), 1);
  if (!data.gaps.length) return html`<p class="committed">✔ readers of all ${counted(data.partition_count, "partition")} get everything</p>`;
  return html`<ul class="bars">
      ${data.gaps.map(
        (row) => html`<li key=${`${row.topic}-${row.partition}`}>
          <span class="what">
            <${PartitionLink} topic=${row.topic} partition=${row.partition} />
            <span>
              ${counted(row.waiting, "offset")} from ${row.last_stable_offset.toLocaleString("en")}
              ${row.age_ms != null && html`, for ${duration(row.age_ms)}`}
            </span>
          </span>
          <${Bar} share=${row.waiting / most} />
          <span class="hint">${pinnedBy(row)}</span>
        </li>`
      )}
    </ul>
    ${data.waiting_partition_count > data.gaps.length &&
    html`<p><a href="/topics?waiting=1">all ${counted(data.waiting_partition_count, "partition")} where readers wait</a></p>`}`;
}

const pinnedBy = (row) => {
  if (row.producer_id == null) return "";
  if (row.is_orphan) return html`producer ${row.producer_id}: no coordinator will end its transaction, it hangs`;
  if (row.transactional_id == null) return html`producer ${row.producer_id}`;
  return html`<${TxnLink} id=${row.transactional_id} />`;
};

const Waiting = ({ data }) => html`<${Table}
  caption="Consumer groups that wait"
  empty="no consumer group waits for a transaction"
  rows=${data.groups}
  keyOf=${(group) => group.group_id}
  columns=${[
    { title: "group", cell: (group) => html`<a href=${groupAddress(group.group_id)}><${Name}>${group.group_id}<//></a>` },
    { title: "waits on", isNumber: true, cell: (group) => counted(group.partitions.length, "partition") },
    { title: "lag to the LSO", isNumber: true, cell: (group) => lag(group.lag_to_lso, group.unknown_count) },
    { title: "lag to the end", isNumber: true, cell: (group) => lag(group.lag_to_high_watermark, group.unknown_count) },
  ]}
/>`;

const SERIES = [
  { label: "commits/s", colour: "committed" },
  { label: "aborts/s", colour: "aborted", dash: [6, 4] },
];

function RatePlot({ data }) {
  if (data.rates_problem) return html`<p class="hint">not known: ${visible(data.rates_problem)}</p>`;
  const rates = data.rates ?? { times_ms: [], commits: [], aborts: [] };
  const last = (values) => values.at(-1) ?? 0;
  return html`<p class="legend">
      <span class="committed">— ${last(rates.commits)} commits/s</span>
      <span class="aborted">- - ${last(rates.aborts)} aborts/s</span>
    </p>
    <${Plot}
      label="commits and aborts per second, of the last two minutes"
      series=${SERIES}
      columns=${[rates.times_ms.map((ms) => ms / 1000), rates.commits, rates.aborts]}
    />
    ${rates.has_estimates && html`<p class="hint">Some of these are estimates: so many transactions end that only a part is counted.</p>`}`;
}

export default function Overview({ data }) {
  return html`<h1>Overview</h1>
    <dl class="numbers">
      <${Figure} name="brokers">${data.broker_count}<//>
      <${Figure} name="transactional ids"><a href="/txns">${data.transactional_id_count.toLocaleString("en")}</a><//>
      <${Figure} name="open transactions"><a href="/txns?state=open">${data.open_count.toLocaleString("en")}</a><//>
      <${Figure} name="partitions"><a href="/topics">${data.partition_count.toLocaleString("en")}</a><//>
      <${Figure} name="partitions where readers wait"><a href="/topics?waiting=1">${data.waiting_partition_count.toLocaleString("en")}</a><//>
      <${Figure} name="groups that wait">${data.group_count.toLocaleString("en")}<//>
    </dl>
    <div class="panels">
      <div class="stack">
        <${Panel} title="What is wrong" id="findings"><${Findings} data=${data} /><//>
        <${Panel} title="Open transactions by age" id="ages"><${Ages} data=${data} /><//>
      </div>
      <div class="stack">
        <${Panel} title="Commits and aborts" id="rates"><${RatePlot} data=${data} /><//>
        <${Panel} title="Where readers wait" id="gaps"><${Gaps} data=${data} /><//>
        <${Panel} title="Who waits" id="waiting"><${Waiting} data=${data} /><//>
      </div>
    </div>
    ${data.problems.map((problem) => html`<p class="hint">not known: ${visible(problem)}</p>`)}`;
}
