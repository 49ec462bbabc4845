// The errors that a transactional client can receive.
import { html } from "../view.js";
import { errorAddress } from "../parts/links.js";
import { Search, Table } from "../parts/table.js";
import { counted } from "../parts/text.js";

const COLUMNS = [
  { title: "code", cell: (e) => e.code, isNumber: true },
  { title: "name", cell: (e) => html`<a href=${errorAddress(e.code)}>${e.name}</a>` },
  { title: "what happened", cell: (e) => e.meaning },
  { title: "retriable", cell: (e) => (e.retriable ? "yes" : "no") },
];

export default function Page({ data, query, setQuery }) {
  return html`
    <h1>Errors</h1>
    <div class="controls">
      <${Search} label="Search" value=${query.search ?? ""} onSearch=${(search) => setQuery({ search }, true)} />
      <span>${data.errors.length} of ${counted(data.count, "error")} that a transactional client can receive</span>
    </div>
    <${Table} caption="Errors" columns=${COLUMNS} rows=${data.errors} keyOf=${(e) => e.code} empty="no error has this in it" />
  `;
}
