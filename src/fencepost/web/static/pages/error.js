// One error: what happened, who caused it, and what to do.
import { html } from "../view.js";

const Row = ({ label, children }) => (children ? html`<div><dt>${label}</dt><dd>${children}</dd></div>` : null);

export default function Page({ data }) {
  const { error } = data;
  return html`
    <h1>${error.name} (${error.code})</h1>
    <section class="panel">
      ${!data.is_transactional && html`<p>A transactional client does not receive this error.</p>`}
      <dl class="explained">
        <${Row} label="what happened">${error.meaning}<//>
        <${Row} label="caused by">${error.who_text}<//>
        <${Row} label="effect">${error.effect_text}<//>
        <${Row} label="retriable">${error.retriable ? "yes" : "no"}<//>
        <${Row} label="what to do">${error.what_to_do}<//>
        <${Row} label="in a transaction">${error.then_text}<//>
        <${Row} label="returned by">${error.apis?.join(", ")}<//>
        <${Row} label="Java">${error.java && `${error.java} (${error.java_family})`}<//>
        <${Row} label="librdkafka">${error.librdkafka}<//>
      </dl>
    </section>
    <p><a href="/errors">All errors</a></p>
  `;
}
