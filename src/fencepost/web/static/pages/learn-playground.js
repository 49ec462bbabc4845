// The playground: a guide for the first minute, then buttons on the left, what they did on the right; below, how to cause each error.
import { html, useEffect, useRef, useState } from "../view.js";
import { State } from "../parts/badge.js";
import { errorAddress } from "../parts/links.js";
import { stylesheet } from "../parts/stylesheet.js";
import { Prose } from "../parts/text.js";
import { Guide } from "./learn-guide.js";
import { Drawing, Records, Refused, useLeaving } from "./learn-parts.js";

await stylesheet(new URL("./learn.css", import.meta.url));

export default function Playground({ data, query, setQuery, actNow }) {
  const { playground } = data;
  const [problem, setProblem] = useState(null);
  const [isBusy, setIsBusy] = useState(false);
  const [producer, setProducer] = useState(data.producer_names[0]);
  // What the last recipe was answered: {code, done}.
  const [cooked, setCooked] = useState(null);
  useLeaving(actNow, { session: query.session });
  const send = async (name, body = {}) => {
    setProblem(null);
    setIsBusy(true);
    try {
      return await actNow(name, { ...body, session: query.session });
    } catch (error) {
      setProblem(error.problem ?? { error: error.message });
      return null;
    } finally {
      setIsBusy(false);
    }
  };
  const open = async () => {
    const answer = await send("open");
    if (answer) setQuery({ session: answer.session });
  };
  const close = async () => {
    await send("close");
    setQuery({ session: null });
  };
  const click = (button, option = "") => {
    setCooked(null);
    return send("click", { button, option, producer });
  };
  const cook = async (code) => {
    const answer = await send("recipe", { code });
    setCooked(answer && { code, done: answer.clicked });
  };
  // Who comes for an error, or has skipped the guide, gets all buttons at once.
  const isGuided = Boolean(playground) && query.guide !== "off" && !query.error;
  const startOver = () => send("click", { button: "reset" });
  const showAround = async () => {
    if (await startOver()) setQuery({ guide: null, error: null });
  };
  return html`
    <p><a href="/learn">Learn</a></p>
    <h1>Playground</h1>
    <p class="learn-about">
      Two producers share one transactional id, on a broker of their own. Each button sends one request, or the few that a real client
      sends, without its retries: so you see every error.
    </p>
    ${data.ended && html`<p class="learn-missing" role="alert">This playground is not here any more: ${data.ended}.</p>`}
    ${!playground
      ? html`<p>
            <button class="learn-primary" type="button" disabled=${isBusy} onClick=${open}>Open a playground</button>${" "}
            <span class="learn-muted">It begins with a guide, and ends when its tab is closed, or after ten minutes without a click.</span>
          </p>
          <${Refused} problem=${problem} />`
      : isGuided
        ? html`
          <div class="learn-play">
            <div>
              <${Guide}
                guide=${data.guide} progress=${playground.progress} transactionalId=${playground.transactional_id} isBusy=${isBusy}
                click=${({ button, option, producer }) => send("click", { button, option, producer })}
                startOver=${startOver} leave=${() => setQuery({ guide: "off" })}
              />
              <${Refused} problem=${problem} />
              <p><button type="button" disabled=${isBusy} onClick=${close}>Close the playground</button></p>
            </div>
            <div class="learn-results">
              <${Log} partition=${playground.partition} group=${playground.group} />
              <${World} playground=${playground} />
            </div>
          </div>
        `
        : html`
          <div class="learn-play">
            <div class="learn-buttons">
              <${Producers} playground=${playground} chosen=${producer} choose=${setProducer} />
              <${Buttons} label=${`Producer ${producer}`} buttons=${data.buttons.producer} isBusy=${isBusy} click=${click} />
              <${Buttons} label="The broker and its world" buttons=${data.buttons.world} isBusy=${isBusy} click=${click} />
              <div class="buttons">
                <button type="button" disabled=${isBusy} onClick=${showAround}>Guide me from the start</button>
                <button type="button" disabled=${isBusy} onClick=${close}>Close the playground</button>
              </div>
            </div>
            <div class="learn-right">
              <${Latest} done=${playground.clicks[0]} problem=${problem} isBusy=${isBusy} />
              <div class="learn-results">
                <${World} playground=${playground} />
                <${Log} partition=${playground.partition} group=${playground.group} />
                <section class="panel"><${Records} records=${playground.records ?? []} /></section>
                <${Earlier} clicks=${playground.clicks.slice(1)} />
              </div>
            </div>
          </div>
        `}
    ${!isGuided &&
    html`<${Recipes}
      recipes=${data.recipes} wanted=${query.error} isOpen=${Boolean(playground)} isBusy=${isBusy} cook=${cook} cooked=${cooked}
    />`}
  `;
}

function Producers({ playground, chosen, choose }) {
  return html`
    <fieldset class="learn-producers">
      <legend>Producer</legend>
      ${playground.producers.map(
        (producer) => html`
          <label key=${producer.name}>
            <input type="radio" name="producer" checked=${chosen === producer.name} onChange=${() => choose(producer.name)} />
            <b>${producer.name}</b> (${producer.client})${" "}
            ${producer.is_registered ? `id ${producer.producer_id}, epoch ${producer.producer_epoch}` : "not registered"}
            ${producer.is_in_txn && ", in a transaction"}
          </label>
        `,
      )}
    </fieldset>
  `;
}

function Buttons({ label, buttons, isBusy, click }) {
  return html`
    <section class="learn-group panel" aria-label=${label}>
      <h2>${label}</h2>
      <ul>
        ${buttons.map((button) => html`<${OneButton} key=${button.name} button=${button} isBusy=${isBusy} click=${click} />`)}
      </ul>
    </section>
  `;
}

function OneButton({ button, isBusy, click }) {
  const options = Object.entries(button.options);
  const [option, setOption] = useState(button.has_plain || !options.length ? "" : options[0][0]);
  const press = async () => {
    const answer = await click(button.name, option);
    // The next click is as it should be again, unless another mistake is chosen.
    if (answer && button.has_plain) setOption("");
  };
  return html`
    <li class="learn-button">
      <button type="button" disabled=${isBusy} title=${button.about} onClick=${press}>${button.label}</button>
      ${options.length > 0 &&
      html`
        <select
          aria-label=${`${button.label}: how`}
          value=${option}
          onChange=${(event) => setOption(event.currentTarget.value)}
        >
          ${button.has_plain && html`<option value="">as it should be</option>`}
          ${options.map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}
        </select>
      `}
    </li>
  `;
}

// The answer stays in sight while the buttons scroll: above what it changed, and on narrow screens at the bottom of the window.
function Latest({ done, problem, isBusy }) {
  const panel = useRef(null);
  useEffect(() => panel.current?.scrollTo(0, 0), [done?.number]);
  return html`
    <section ref=${panel} class="panel learn-latest" aria-labelledby="learn-latest" aria-live="polite" tabindex="0">
      ${isBusy && html`<span class="learn-working">working …</span>`}
      <h2 id="learn-latest">The last click</h2>
      <${Refused} problem=${problem} />
      ${done ? html`<${Done} done=${done} isOpen=${true} />` : html`<p class="learn-muted">Nothing was clicked yet. Register a producer first.</p>`}
    </section>
  `;
}

function Earlier({ clicks }) {
  if (!clicks.length) return null;
  return html`
    <section class="panel" aria-labelledby="learn-earlier">
      <h2 id="learn-earlier">Earlier clicks</h2>
      ${clicks.map((done) => html`<${Done} key=${done.number} done=${done} isOpen=${false} />`)}
    </section>
  `;
}

function Done({ done, isOpen }) {
  return html`
    <div class="learn-done">
      <p class="learn-said"><b>${done.number}.</b> ${done.says}</p>
      ${isOpen && html`<p class="learn-muted">${done.about}</p>`}
      ${done.exchanges.map((sent, index) => html`<${Exchange} key=${index} sent=${sent} isOpen=${isOpen} />`)}
    </div>
  `;
}

function Exchange({ sent, isOpen }) {
  const isError = sent.error_code !== 0;
  return html`
    <div class=${isError ? "learn-exchange learn-exchange-error" : "learn-exchange"}>
      <p>
        <b>${sent.api}</b>${sent.version !== null && ` v${sent.version}`} of ${sent.sender}:${" "}
        <b class="learn-answer">${isError ? `${sent.error} (${sent.error_code})` : "NONE"}</b> ${sent.took_ms} ms
      </p>
      ${sent.problem && html`<p>${sent.problem}</p>`}
      ${isOpen &&
      sent.explanation &&
      html`
        <dl class="learn-explanation">
          <dt>what happened</dt>
          <dd><${Prose}>${sent.explanation.meaning}<//></dd>
          ${sent.explanation.who && html`<dt>caused by</dt><dd>${sent.explanation.who}</dd>`}
          ${sent.explanation.effect && html`<dt>effect</dt><dd>${sent.explanation.effect}</dd>`}
          <dt>what to do</dt>
          <dd><${Prose}>${sent.explanation.what_to_do}<//></dd>
        </dl>
        ${!sent.explanation.who && html`<p><a href=${errorAddress(sent.error_code)}>What ${sent.error} means otherwise</a></p>`}
      `}
      ${isOpen &&
      html`
        <details>
          <summary>Request and answer of ${sent.api}</summary>
          <div class="learn-messages">
            <${Json} label="request" value=${sent.request} />
            <${Json} label="answer" value=${sent.answer} />
          </div>
        </details>
      `}
    </div>
  `;
}

function Json({ label, value }) {
  return html`<div><h4>${label}</h4><pre tabindex="0" aria-label=${label}>${value === null ? "none" : JSON.stringify(value, null, 2)}</pre></div>`;
}

function World({ playground }) {
  const { broker, txn } = playground;
  const days = Math.round(broker.clock_ahead_ms / 86_400_000);
  const ahead = days > 0 ? `${days} days` : `${Math.round(broker.clock_ahead_ms / 1000)} s`;
  return html`
    <section class="panel" aria-labelledby="learn-world">
      <h2 id="learn-world">The state of ${playground.transactional_id}</h2>
      ${playground.problem && html`<p class="learn-missing">${playground.problem}</p>`}
      <p>
        ${txn
          ? html`<${State} name=${txn.state} /> producer id ${txn.producer_id}, epoch ${txn.producer_epoch}${txn.partitions.length > 0 && `, on ${txn.partitions.join(", ")}`}`
          : playground.states_on_disk
            ? html`The broker does not run. On disk: <b>${playground.states_on_disk[playground.transactional_id] ?? "nothing"}</b>`
            : "No producer has registered it."}
      </p>
      ${playground.drawing && html`<${Drawing} drawing=${playground.drawing} />`}
      <p class="learn-muted">
        ${broker.is_running ? `The broker runs at ${broker.address}.` : "The broker is killed."} Node ${broker.leader} leads orders-0, node${" "}
        ${broker.coordinator} coordinates.${broker.is_cut && " The network between them is cut."}
        ${broker.clock_ahead_ms > 0 && ` Its clock is ${ahead} ahead.`}
        ${broker.forbidden.length > 0 && ` Forbidden: ${broker.forbidden.join(", ")}.`}
      </p>
    </section>
  `;
}

function Log({ partition, group }) {
  if (!partition) return null;
  return html`
    <section class="panel" aria-labelledby="learn-log">
      <h2 id="learn-log">The log of ${partition.name}</h2>
      <ol class="learn-strip">
        ${partition.entries.map((entry) => {
          const look = entry.kind === "marker" ? "marker" : entry.fate;
          const text = entry.kind === "marker" ? `${entry.marker} marker` : `${entry.key} ${entry.fate}`;
          const isStable = entry.offset < partition.last_stable_offset;
          return html`
            <li key=${entry.offset} class=${`learn-entry learn-entry-${look} ${isStable ? "" : "learn-entry-unstable"}`}>
              <span class="learn-offset">${entry.offset}</span> ${text}
            </li>
          `;
        })}
      </ol>
      <p>
        Last stable offset ${partition.last_stable_offset}, high watermark ${partition.high_watermark}.${" "}
        ${group && `Group ${group.group_id}: offset ${group.offset ?? "none"}${group.is_pending ? ", and a transaction has another one" : ""}.`}
      </p>
      <dl class="learn-readers">
        <dt>read_uncommitted gets</dt>
        <dd>${partition.read_uncommitted.join(", ") || "nothing"}</dd>
        <dt>read_committed gets</dt>
        <dd>${partition.read_committed.join(", ") || "nothing"}</dd>
      </dl>
    </section>
  `;
}

// The answer to a recipe, below its button.
function Cooked({ done }) {
  const answer = useRef(null);
  useEffect(() => answer.current.scrollIntoView({ block: "nearest" }), []);
  return html`<div ref=${answer} role="status">
    <${Done} done=${done} isOpen=${true} />
    <p><a href="#learn-latest">See the states and the log that it left</a></p>
  </div>`;
}

// An address with ?error=48 shows the recipe of this error.
function Recipes({ recipes, wanted, isOpen, isBusy, cook, cooked }) {
  return html`
    <section class="panel" aria-labelledby="learn-recipes">
      <h2 id="learn-recipes">How do I cause …?</h2>
      <p>Every error that a request of a transaction can be answered with, and the clicks that cause it here.</p>
      <ul class="learn-recipes">
        ${recipes.map(
          (recipe) => html`
            <li key=${recipe.code}>
              <details open=${String(recipe.code) === wanted}>
                <summary>${recipe.name} (${recipe.code})</summary>
                ${recipe.is_injected &&
                html`<p class="learn-muted">This broker does not give the error by itself here; it is told to answer once with it.</p>`}
                <ol>
                  ${recipe.clicks.map((click, index) => html`<li key=${index}>${click.says}</li>`)}
                </ol>
                ${recipe.note && html`<p>${recipe.note}</p>`}
                <p><a href=${errorAddress(recipe.code)}>What it means</a></p>
                <button type="button" disabled=${!isOpen || isBusy} onClick=${() => cook(recipe.code)}>Start over and click this for me</button>
                ${!isOpen && html`<p class="learn-muted">Open a playground first: the button is at the top.</p>`}
                ${cooked?.code === recipe.code &&
                html`<${Cooked} key=${cooked.done.number} done=${cooked.done} />`}
              </details>
            </li>
          `,
        )}
      </ul>
    </section>
  `;
}
