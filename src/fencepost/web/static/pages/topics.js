// Every partition, with its ends and the transaction that holds its last stable offset.
import { html } from "../view.js";
import { partitionAddress, txnAddress } from "../parts/links.js";
import { Pager, Search, Table } from "../parts/table.js";
import { Name, counted, visible } from "../parts/text.js";
import { duration } from "../parts/time.js";

const number = (value) => value.toLocaleString("en");

function heldBy(row) {
  if (row.producer_id == null) return "";
  const age = row.age_ms == null ? "" : `, for ${duration(row.age_ms)}`;
  if (row.is_orphan) return html`<span class="danger">✖ producer ${row.producer_id}, which hangs${age}</span>`;
  if (row.transactional_id == null) return `producer ${row.producer_id}${age}`;
  return html`<a href=${txnAddress(row.transactional_id)}><${Name}>${row.transactional_id}<//></a>${age}`;
}

const COLUMNS = [
  {
    title: "partition",
    sort: "topic",
    cell: (row) => html`<a href=${partitionAddress(row.topic, row.partition)}><${Name}>${`${row.topic}-${row.partition}`}<//></a>`,
  },
  { title: "last stable offset", sort: "lso", isNumber: true, cell: (row) => number(row.last_stable_offset) },
  { title: "high watermark", sort: "end", isNumber: true, cell: (row) => number(row.high_watermark) },
  {
    title: "readers wait for",
    sort: "waiting",
    isNumber: true,
    cell: (row) => (row.waiting ? html`<span class="open">◐ ${counted(row.waiting, "offset")}</span>` : "0"),
  },
  { title: "held by", cell: heldBy },
];

export default function Topics({ data, setQuery }) {
  return html`<h1>Partitions</h1>
    <div class="controls">
      <${Search} label="Search" value=${data.search} onSearch=${(search) => setQuery({ search, page: null }, true)} />
      <label>
        <input type="checkbox" checked=${data.only_waiting} onChange=${(event) => setQuery({ waiting: event.target.checked ? "1" : null, page: null })} />
        ${" "}only where readers wait
      </label>
      <span class="muted">${counted(data.total, "partition")} of ${number(data.partition_count)}, ${counted(data.topic_count, "topic")} in all</span>
    </div>
    <${Table}
      caption="Partitions" rows=${data.rows} columns=${COLUMNS} keyOf=${(row) => `${row.topic}-${row.partition}`}
      sort=${data.sort} onSort=${(sort) => setQuery({ sort, page: null })} empty="no partition was found"
    />
    <${Pager} page=${data.page} pageCount=${data.page_count} total=${data.total} onPage=${(page) => setQuery({ page })} />
    ${data.problems.map((problem) => html`<p class="hint">not known: ${visible(problem)}</p>`)}`;
}
