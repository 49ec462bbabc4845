// One consumer group: its members, its offsets, the offsets in transactions, and its lags.

import { html } from "../vendor/htm/preact-standalone.module.js";
import { Pages, Search, Sorting } from "../parts/pager.js";
import { Safe } from "../parts/safe.js";

const MEMBER_WORDS = { search: "members_search", page: "members_page" };

export default function Page({ data, query, setQuery }) {
  const list = { paged: data.partitions, query, setQuery };
  const members = { paged: data.members, query, setQuery, words: MEMBER_WORDS };
  return html`
    <link rel="stylesheet" href="/static/pages/groups.css" />
    <h1>Group <${Safe} text=${data.group_id} /></h1>
    ${data.problems.map((problem) => html`<p class="problem" role="status">${problem}</p>`)}
    <dl class="facts">
      <div><dt>state</dt><dd data-name="state">${data.state}</dd></div>
      <div><dt>protocol</dt><dd>${data.protocol}</dd></div>
      <div><dt>coordinator</dt><dd>broker ${data.coordinator}</dd></div>
      ${data.assignor && html`<div><dt>assignor</dt><dd>${data.assignor}</dd></div>`}
      ${data.epoch !== null && html`<div><dt>epoch</dt><dd>${data.epoch}</dd></div>`}
      <div><dt>lag to LSO</dt><dd data-name="lag-to-lso">${data.lag_to_lso}</dd></div>
      <div><dt>lag to high watermark</dt><dd data-name="lag-to-hw">${data.lag_to_high_watermark}</dd></div>
    </dl>
    ${data.pending_count > 0 && html`<${Pending} data=${data} />`}

    <section aria-labelledby="partitions-title">
      <h2 id="partitions-title">Partitions</h2>
      <${Search} label="Search partitions" ...${list} />
      <div class="scroll" tabindex="0" role="region" aria-labelledby="partitions-title">
        <table>
          <thead>
            <tr>
              <${Sorting} name="partition" ...${list}>partition<//>
              <th scope="col">committed offset</th>
              <th scope="col">LSO</th>
              <th scope="col">high watermark</th>
              <${Sorting} name="lag_to_lso" largestFirst ...${list}>lag to LSO<//>
              <${Sorting} name="lag_to_high_watermark" largestFirst ...${list}>lag to high watermark<//>
              <th scope="col">waits for</th>
              <th scope="col">member</th>
            </tr>
          </thead>
          <tbody>
            ${data.partitions.rows.map((row) => html`<${Partition} key=${`${row.topic}-${row.partition}`} row=${row} />`)}
          </tbody>
        </table>
      </div>
      <${Pages} what="partitions" ...${list} />
    </section>

    <section aria-labelledby="members-title">
      <h2 id="members-title">Members</h2>
      <${Search} label="Search members" ...${members} />
      <div class="scroll" tabindex="0" role="region" aria-labelledby="members-title">
        <table>
          <thead>
            <tr><th scope="col">member</th><th scope="col">client</th><th scope="col">host</th><th scope="col">partitions</th></tr>
          </thead>
          <tbody>
            ${data.members.rows.map(
              (member) => html`<tr key=${member.member_id}>
                <th scope="row">
                  <${Safe} text=${member.member_id} />
                  ${member.instance_id !== null && html` <small>static: <${Safe} text=${member.instance_id} /></small>`}
                </th>
                <td><${Safe} text=${member.client_id} /></td>
                <td><${Safe} text=${member.host} /></td>
                <td>
                  ${member.partitions.map((where, n) => html`${n ? ", " : ""}<${Place} where=${where} />`)}
                  ${member.partition_count > member.partitions.length && ` and ${member.partition_count - member.partitions.length} more`}
                </td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
      ${data.members.total === 0 && html`<p class="empty">The group has no members.</p>`}
      <${Pages} what="members" ...${members} />
    </section>
  `;
}

function Pending({ data }) {
  const pin = data.offsets_wait_for;
  return html`<p class="pending" data-name="pending">
    <span class="badge is-open">… pending</span> ${data.pending_count} offsets are in a transaction that has not ended. Until it
    ends, a new member may be unable to start.
    ${pin !== null && pin.transactional_id !== null && html` It is <${Txn} id=${pin.transactional_id} />.`}
  </p>`;
}

function Place({ where }) {
  const address = `/partition/${encodeURIComponent(where.topic)}/${where.partition}`;
  return html`<a href=${address}><${Safe} text=${where.topic} />-${where.partition}</a>`;
}

function Txn({ id }) {
  return html`<a href=${`/txn/${encodeURIComponent(id)}`}><${Safe} text=${id} /></a>`;
}

function Partition({ row }) {
  const pin = row.waits_for;
  return html`<tr data-partition=${`${row.topic}-${row.partition}`}>
    <th scope="row"><${Place} where=${row} /></th>
    <td class="number">
      ${row.committed_offset ?? "–"} ${row.is_pending && html`<span class="badge is-open">… in a transaction</span>`}
    </td>
    <td class="number">${row.last_stable_offset ?? "?"}</td>
    <td class="number">${row.high_watermark ?? "?"}</td>
    <td class="number">${row.lag_to_lso ?? "–"}</td>
    <td class="number">${row.lag_to_high_watermark ?? "–"}</td>
    <td>
      ${!row.is_waiting
        ? "–"
        : pin !== null && pin.transactional_id !== null
          ? html`<${Txn} id=${pin.transactional_id} />`
          : pin !== null && pin.producer_id !== null
            ? `producer ${pin.producer_id}`
            : "a transaction"}
    </td>
    <td>${row.member_id === null ? "–" : html`<${Safe} text=${row.member_id} />`}</td>
  </tr>`;
}
