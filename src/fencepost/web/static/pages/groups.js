// All consumer groups: which of them wait for transactions, and how far they are behind.
import { html } from "../view.js";
import { Badge } from "../parts/badge.js";
import { groupAddress } from "../parts/links.js";
import { Pager, Search, Table } from "../parts/table.js";
import { Name, counted, lag, visible } from "../parts/text.js";

function waits(group) {
  const said = [];
  if (group.waiting_count) said.push(`on ${group.waiting_count} of ${counted(group.partition_count, "partition")}`);
  if (group.pending_count) said.push(`${counted(group.pending_count, "offset")} in a transaction`);
  return said.length ? html`<${Badge} kind="open" sign="…">${said.join("; ")}<//>` : "–";
}

const COLUMNS = [
  { title: "group", sort: "group_id", cell: (group) => html`<a href=${groupAddress(group.group_id)}><${Name}>${group.group_id}<//></a>` },
  { title: "state", sort: "state", cell: (group) => group.state },
  { title: "protocol", cell: (group) => group.protocol },
  { title: "waits for a transaction", sort: "waiting", cell: waits },
  { title: "lag to the LSO", sort: "lag_to_lso", isNumber: true, cell: (group) => lag(group.lag_to_lso, group.unknown_count) },
  { title: "lag to the end", sort: "lag_to_high_watermark", isNumber: true, cell: (group) => lag(group.lag_to_high_watermark, group.unknown_count) },
];

export default function Groups({ data, query, setQuery }) {
  return html`<h1>Consumer groups</h1>
    ${data.problems.map((problem) => html`<p class="hint">not known: ${visible(problem)}</p>`)}
    <p>${counted(data.group_count, "group")}, of which ${data.waiting_count.toLocaleString("en")} wait for a transaction</p>
    ${data.left_out > 0 && html`<p>${counted(data.left_out, "group")} with notes of the Spark sink left out; <code>fencepost group list --all</code> lists them</p>`}
    <div class="controls">
      <${Search} label="Search groups" value=${data.search} onSearch=${(search) => setQuery({ search, page: null }, true)} />
      <label>
        <input type="checkbox" checked=${Boolean(query.waits)} onChange=${(event) => setQuery({ waits: event.target.checked ? "1" : null, page: null })} />
        only those that wait
      </label>
    </div>
    <${Table}
      caption="Consumer groups" empty="no group" rows=${data.rows} keyOf=${(group) => group.group_id} columns=${COLUMNS}
      sort=${data.sort} onSort=${(sort) => setQuery({ sort, page: null })}
    />
    <${Pager} page=${data.page} pageCount=${data.page_count} total=${data.total} onPage=${(page) => setQuery({ page })} />`;
}
