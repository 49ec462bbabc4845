// What passes a tap: the requests and replies of transactions.
import { html } from "../view.js";
import { Lanes } from "../parts/lanes.js";
import { Search } from "../parts/table.js";
import { Name } from "../parts/text.js";

export default function Tap({ data, setQuery }) {
  return html`<h1>On the wire</h1>
    <p>Clients that use <code>bootstrap.servers=${data.address}</code> are shown here.</p>
    <h2>Requests and replies</h2>
    <div class="controls">
      <${Search} label="Search" value=${data.search} onSearch=${(search) => setQuery({ search }, true)} />
      <span class="muted">${data.count.toLocaleString("en")} ${data.count === 1 ? "message" : "messages"}${data.count > data.steps.length ? `, the last ${data.steps.length}` : ""}</span>
    </div>
    ${data.steps.length
      ? html`<${Lanes} lanes=${data.lanes} steps=${data.steps} label="Requests and replies" />`
      : html`<p>${data.search ? html`Nothing matches <${Name}>${data.search}<//>.` : "No client has begun a transaction yet."}</p>`}`;
}
