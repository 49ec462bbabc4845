// Learn: the demos, and the way to the playground.
import { html } from "../view.js";
import { stylesheet } from "../parts/stylesheet.js";

await stylesheet(new URL("./learn.css", import.meta.url));

export default function Learn({ data }) {
  return html`
    <h1>Learn</h1>
    <p>
      Each demo and each playground runs a broker of its own on this machine, in a temporary folder. Nothing here touches your cluster.
    </p>
    <ul class="learn-cards">
      <li class="learn-card learn-card-playground">
        <h2><a href="/learn/playground">Playground</a></h2>
        <p>
          Two producers with buttons: begin, produce, commit, kill the broker, delay an EndTxn. Cause each of the ${data.errors} errors that
          a transaction can meet, and see what it does.
        </p>
      </li>
      ${data.demos.map(
        (demo) => html`
          <li class="learn-card" key=${demo.name}>
            <h2><a href=${`/learn/${demo.name}`}>${demo.name}</a></h2>
            <p class="learn-title">${demo.title}</p>
            <p>${demo.about}</p>
            ${demo.why_not && html`<p class="learn-missing">It cannot play here: ${demo.why_not}</p>`}
          </li>
        `,
      )}
    </ul>
  `;
}
