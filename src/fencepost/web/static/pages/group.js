// One consumer group: its members, its offsets, the offsets in transactions, and its lags.
import { html } from "../view.js";
import { Badge } from "../parts/badge.js";
import { partitionAddress, txnAddress } from "../parts/links.js";
import { Pager, Search, Table } from "../parts/table.js";
import { Name, counted, lag, visible } from "../parts/text.js";

const Place = ({ where }) =>
  html`<a href=${partitionAddress(where.topic, where.partition)}><${Name}>${`${where.topic}-${where.partition}`}<//></a>`;
const Txn = ({ id }) => html`<a href=${txnAddress(id)}><${Name}>${id}<//></a>`;
const number = (value, missing = "–") => (value === null ? missing : value.toLocaleString("en"));

function waitsFor(row) {
  if (!row.is_waiting) return "–";
  const txn = row.waits_for;
  if (txn?.transactional_id != null) return html`<${Txn} id=${txn.transactional_id} />`;
  return txn?.producer_id != null ? `producer ${txn.producer_id}` : "a transaction";
}

const PARTITIONS = [
  { title: "partition", sort: "partition", cell: (row) => html`<${Place} where=${row} />` },
  {
    title: "committed offset",
    isNumber: true,
    cell: (row) => html`${number(row.committed_offset)} ${row.is_pending && html`<${Badge} kind="open" sign="…">in a transaction<//>`}`,
  },
  { title: "last stable offset", isNumber: true, cell: (row) => number(row.last_stable_offset, "?") },
  { title: "high watermark", isNumber: true, cell: (row) => number(row.high_watermark, "?") },
  { title: "lag to the LSO", sort: "lag_to_lso", isNumber: true, cell: (row) => lag(row.lag_to_lso) },
  { title: "lag to the end", sort: "lag_to_high_watermark", isNumber: true, cell: (row) => lag(row.lag_to_high_watermark) },
  { title: "waits for", cell: waitsFor },
  { title: "member", cell: (row) => (row.member_id === null ? "–" : html`<${Name}>${row.member_id}<//>`) },
];

const MEMBERS = [
  {
    title: "member",
    cell: (member) => html`<${Name}>${member.member_id}<//>
      ${member.instance_id !== null && html` <small>static: <${Name}>${member.instance_id}<//></small>`}`,
  },
  { title: "client", cell: (member) => html`<${Name}>${member.client_id}<//>` },
  { title: "host", cell: (member) => html`<${Name}>${member.host}<//>` },
  {
    title: "partitions",
    cell: (member) => html`${member.partitions.map((where) => html`<${Place} where=${where} /> `)}
      ${member.partition_count > member.partitions.length && `and ${member.partition_count - member.partitions.length} more`}`,
  },
];

const Fact = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

const Pending = ({ data }) => html`<p class="banner" data-name="pending">
  <${Badge} kind="open" sign="…">pending<//> ${counted(data.pending_count, "offset")} in a transaction that has not ended. Until it
  ends, a new member may be unable to start.
  ${data.offsets_wait_for?.transactional_id != null && html` The transaction is <${Txn} id=${data.offsets_wait_for.transactional_id} />.`}
</p>`;

export default function Group({ data, setQuery }) {
  const { partitions, members } = data;
  return html`<h1>Group <${Name}>${data.group_id}<//></h1>
    ${data.problems.map((problem) => html`<p class="hint">not known: ${visible(problem)}</p>`)}
    <dl class="numbers">
      <${Fact} name="state">${data.state}<//>
      <${Fact} name="protocol">${data.protocol}<//>
      <${Fact} name="coordinator">broker ${data.coordinator}<//>
      ${data.assignor !== null && html`<${Fact} name="assignor">${visible(data.assignor)}<//>`}
      ${data.epoch !== null && html`<${Fact} name="epoch">${data.epoch}<//>`}
      <${Fact} name="lag to the LSO">${lag(data.lag_to_lso, data.unknown_count)}<//>
      <${Fact} name="lag to the end">${lag(data.lag_to_high_watermark, data.unknown_count)}<//>
    </dl>
    ${data.pending_count > 0 && html`<${Pending} data=${data} />`}
    <section>
      <h2>Partitions</h2>
      <div class="controls">
        <${Search} label="Search partitions" value=${partitions.search} onSearch=${(search) => setQuery({ search, page: null }, true)} />
      </div>
      <${Table}
        caption="Partitions of the group" empty="no partition" rows=${partitions.rows} columns=${PARTITIONS}
        keyOf=${(row) => `${row.topic}-${row.partition}`} sort=${partitions.sort} onSort=${(sort) => setQuery({ sort, page: null })}
      />
      <${Pager} label="Pages of partitions" page=${partitions.page} pageCount=${partitions.page_count} total=${partitions.total} onPage=${(page) => setQuery({ page })} />
    </section>
    <section>
      <h2>Members</h2>
      <div class="controls">
        <${Search} label="Search members" value=${members.search} onSearch=${(search) => setQuery({ members_search: search, members_page: null }, true)} />
      </div>
      <${Table} caption="Members of the group" empty="no member" rows=${members.rows} columns=${MEMBERS} keyOf=${(member) => member.member_id} />
      <${Pager} label="Pages of members" page=${members.page} pageCount=${members.page_count} total=${members.total} onPage=${(page) => setQuery({ members_page: page })} />
    </section>`;
}
