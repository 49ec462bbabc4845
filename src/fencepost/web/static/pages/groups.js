// All consumer groups: which of them wait for transactions, and how far they are behind.

import { html } from "../vendor/htm/preact-standalone.module.js";
import { Pages, Search, Sorting } from "../parts/pager.js";
import { Safe } from "../parts/safe.js";

export default function Page({ data, query, setQuery }) {
  const list = { paged: data.groups, query, setQuery };
  const onlyWaiting = (event) => setQuery({ ...query, waits: event.target.checked ? "1" : undefined, page: undefined });
  return html`
    <link rel="stylesheet" href="/static/pages/groups.css" />
    <h1>Consumer groups</h1>
    ${data.problems.map((problem) => html`<p class="problem" role="status">${problem}</p>`)}
    <p data-name="summary">${data.total} groups; ${data.waiting_count} wait for a transaction.</p>
    <div class="tools">
      <${Search} label="Search groups" ...${list} />
      <label><input type="checkbox" checked=${Boolean(query.waits)} onChange=${onlyWaiting} /> only those that wait</label>
    </div>
    <div class="scroll" tabindex="0" role="region" aria-label="Groups">
      <table>
        <thead>
          <tr>
            <${Sorting} name="group_id" ...${list}>group<//>
            <${Sorting} name="state" ...${list}>state<//>
            <th scope="col">protocol</th>
            <th scope="col">partitions</th>
            <${Sorting} name="waiting" largestFirst ...${list}>wait for a transaction<//>
            <${Sorting} name="lag_to_lso" largestFirst ...${list}>lag to LSO<//>
            <${Sorting} name="lag_to_high_watermark" largestFirst ...${list}>lag to high watermark<//>
          </tr>
        </thead>
        <tbody>
          ${data.groups.rows.map(
            (group) => html`<tr key=${group.group_id} data-group=${group.group_id}>
              <th scope="row"><a href=${groupAddress(group.group_id)}><${Safe} text=${group.group_id} /></a></th>
              <td>${group.state}</td>
              <td>${group.protocol}</td>
              <td class="number">${group.partition_count}</td>
              <td>${waits(group)}</td>
              <td class="number">${group.lag_to_lso}</td>
              <td class="number">${group.lag_to_high_watermark}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${!data.groups.rows.length && html`<p class="empty">No group matches.</p>`}
    <${Pages} what="groups" ...${list} />
  `;
}

function groupAddress(id) {
  return `/group/${encodeURIComponent(id)}`;
}

function waits(group) {
  const said = [];
  if (group.waiting_count) said.push(`on ${group.waiting_count} of ${group.partition_count} partitions`);
  if (group.pending_count) said.push(`${group.pending_count} offsets in a transaction`);
  return said.length ? html`<span class="badge is-open">… ${said.join("; ")}</span>` : "–";
}
