// Every transactional id.
import { html } from "../view.js";
import { State } from "../parts/badge.js";
import { txnAddress } from "../parts/links.js";
import { Pager, Search, Table } from "../parts/table.js";
import { Name, counted, visible } from "../parts/text.js";
import { duration } from "../parts/time.js";

const COLUMNS = [
  { title: "transactional id", sort: "id", cell: (row) => html`<a href=${txnAddress(row.transactional_id)}><${Name}>${row.transactional_id}<//></a>` },
  { title: "state", sort: "state", cell: (row) => html`<${State} name=${row.state} />` },
  { title: "age", sort: "age", isNumber: true, cell: (row) => (row.age_ms == null ? "" : duration(row.age_ms)) },
  { title: "of its timeout", isNumber: true, cell: (row) => (row.timeout_share == null ? "" : `${Math.round(row.timeout_share * 100)} %`) },
  { title: "partitions", isNumber: true, cell: (row) => (row.age_ms == null ? "" : row.partition_count) },
  { title: "producer id", sort: "producer", isNumber: true, cell: (row) => row.producer_id },
  { title: "coordinator", sort: "coordinator", isNumber: true, cell: (row) => row.coordinator },
];

export default function Txns({ data, setQuery }) {
  return html`<h1>Transactional ids</h1>
    <div class="controls">
      <${Search} label="Search" value=${data.search} onSearch=${(search) => setQuery({ search, page: null }, true)} />
      <label>State${" "}
        <select value=${data.state} onChange=${(event) => setQuery({ state: event.target.value, page: null })}>
          <option value="">any</option>
          ${data.states.map((state) => html`<option value=${state}>${state}</option>`)}
        </select>
      </label>
      <span class="muted">${counted(data.total, "id")} of ${data.id_count.toLocaleString("en")}</span>
    </div>
    <${Table}
      caption="Transactional ids" rows=${data.rows} columns=${COLUMNS} keyOf=${(row) => row.transactional_id}
      sort=${data.sort} onSort=${(sort) => setQuery({ sort, page: null })} empty="no transactional id was found"
    />
    <${Pager} page=${data.page} pageCount=${data.page_count} total=${data.total} onPage=${(page) => setQuery({ page })} />
    ${data.problems.map((problem) => html`<p class="hint">not known: ${visible(problem)}</p>`)}`;
}
