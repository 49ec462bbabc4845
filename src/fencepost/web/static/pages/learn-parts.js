// What the demos and the playground both show: requests, records of __transaction_state, states.
import { html, useEffect } from "../view.js";
import { State } from "../parts/badge.js";
import { Lanes } from "../parts/lanes.js";
import { States } from "../parts/machine.js";
import { Scroll } from "../parts/scroll.js";

// Says to the server that this tab is closed or shows another page, so that its broker does not run for nothing.
export function useLeaving(actNow, given) {
  const isOpen = Object.values(given).every((value) => value != null);
  useEffect(() => {
    if (!isOpen) return;
    // The browser sends such a request also after the page has gone.
    const leave = () => actNow("leave", given, { keepalive: true }).catch(() => {});
    window.addEventListener("pagehide", leave);
    return () => window.removeEventListener("pagehide", leave);
  }, [isOpen, ...Object.values(given)]);
}

export const Refused = ({ problem }) =>
  problem &&
  html`<div class="learn-missing" role="alert">
    <p>${problem.error}</p>
    ${problem.hint && html`<p>${problem.hint}</p>`}
  </div>`;

const number = (value) => (value === null || value === undefined || value < 0 ? "–" : String(value));

// A registration carries no producer id yet.
const identity = (rpc) => rpc.producer_id !== null && html`<small>id ${rpc.producer_id}, epoch ${number(rpc.producer_epoch)}</small>`;
const took = (rpc) => rpc.duration_us !== null && html`<small>${(rpc.duration_us / 1000).toFixed(1)} ms</small>`;

// Several steps may be open, and each table has a name of its own.
const ofStep = (step) => (step === undefined ? "" : ` of step ${step}`);

export function Rpcs({ rpcs, step, without = "No request of a transaction was sent." }) {
  if (!rpcs.length) return html`<p class="learn-muted">${without}</p>`;
  return html`
    <h3>Requests</h3>
    <${Scroll} kind="learn-scroll" label=${`Requests${ofStep(step)}`}>
      <table class="learn-rpcs">
        <thead>
          <tr>
            <th scope="col">request</th>
            <th scope="col">of</th>
            <th scope="col">about</th>
            <th scope="col">answer</th>
          </tr>
        </thead>
        <tbody>
          ${rpcs.map(
            (rpc, index) => html`
              <tr key=${index}>
                <td><b>${rpc.name}</b> v${rpc.version}</td>
                <td>${rpc.transactional_id}${identity(rpc)}</td>
                <td>${rpc.about}</td>
                <td>${rpc.result === null ? "not answered yet" : rpc.result}${took(rpc)}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    <//>
  `;
}

export function Records({ records, step }) {
  const title = "Records in __transaction_state";
  if (!records.length) return html`<p class="learn-muted">No record was written to __transaction_state.</p>`;
  return html`
    <h3>${title}</h3>
    <${Scroll} kind="learn-scroll" label=${`${title}${ofStep(step)}`}>
      <table class="learn-records">
        <thead>
          <tr>
            <th scope="col">offset</th>
            <th scope="col">epoch</th>
            <th scope="col">state, and what happened</th>
          </tr>
        </thead>
        <tbody>
          ${records.map(
            (record) => html`
              <tr key=${`${record.topic_partition} ${record.offset}`}>
                <td title=${record.topic_partition}>${record.offset}</td>
                <td>${number(record.producer_epoch)}</td>
                <td>
                  <${State} name=${record.state} /> <span class="learn-what">${record.what}</span>
                  ${record.partitions.length > 0 && html`<small>partitions: ${record.partitions.join(", ")}</small>`}
                </td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    <//>
  `;
}

export function Txns({ txns }) {
  if (!txns.length) return html`<p class="learn-muted">No producer has registered yet.</p>`;
  return html`
    <h3>State afterwards</h3>
    <ul class="learn-txns">
      ${txns.map(
        (txn) => html`
          <li key=${txn.transactional_id}>
            <${State} name=${txn.state} /> <code>${txn.transactional_id}</code>, producer id ${number(txn.producer_id)}, epoch${" "}
            ${number(txn.producer_epoch)}${txn.partitions.length > 0 && html`, on ${txn.partitions.join(", ")}`}
          </li>
        `,
      )}
    </ul>
  `;
}

// As in learn.css: there is room for the states beside the words.
const isWide = () => window.matchMedia("(min-width: 75rem)").matches;

// The last transaction of an id: its states, and which requests and records it is made of.
export function Drawing({ drawing }) {
  return html`
    <${States} machine=${drawing.machine} isOpen=${isWide() && drawing.machine.way.length > 0} />
    ${drawing.steps.length > 0 &&
    html`<${Lanes}
      key=${drawing.transactional_id}
      lanes=${drawing.lanes}
      steps=${drawing.steps}
      label="Swim-lanes of the transaction"
      name=${drawing.transactional_id}
      note="the broker has forgotten this request: it keeps the last ones of each connection"
    />`}
  `;
}
