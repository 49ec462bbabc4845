// The first minute in the playground: one button at a time, and what its click has done.
import { html, useState } from "../view.js";

// `click` sends a click and resolves with null if it was refused; `startOver` begins again, `leave` shows all buttons.
export function Guide({ guide, progress, transactionalId, isBusy, click, startOver, leave }) {
  // The step whose click was sent. Its result comes with the next document.
  const [sent, setSent] = useState(null);
  const { done, is_astray: isAstray } = progress;
  const isWaiting = sent === null ? isBusy : sent === done && !isAstray;
  const step = guide[done];
  const isOver = done === guide.length;
  const press = async () => {
    if (isWaiting) return;
    if (isOver) return leave();
    if (isAstray) {
      setSent(null);
      return startOver();
    }
    setSent(done);
    if ((await click(step)) === null) setSent(null);
  };
  const label = isOver ? "Go on alone" : isAstray ? "Start over" : step.label;
  // The button is not disabled while it waits, so that it keeps the focus.
  return html`
    <section class="panel learn-guide" aria-labelledby="learn-guide">
      <h2 id="learn-guide">The first minute</h2>
      <p class="learn-muted">${isOver ? `All ${guide.length} steps are done.` : `Step ${done + 1} of ${guide.length}, with the transactional id ${transactionalId}`}</p>
      <div aria-live="polite">
        ${done > 0 && html`<p class="learn-happened">${guide[done - 1].happened}</p>`}
        <p class="learn-ask">
          ${isOver
            ? "Now every button is yours: kill the broker, lose an answer, or choose an error from the list below."
            : isAstray
              ? "Another click has changed what the next step does, so the guide cannot go on from here."
              : step.ask}
        </p>
      </div>
      <div class="buttons">
        <button class="learn-primary" type="button" aria-disabled=${isWaiting} data-step=${isOver ? "over" : done} onClick=${press}>
          ${label}
        </button>
        ${!isOver && html`<button type="button" onClick=${leave}>Skip the guide</button>`}
      </div>
    </section>
  `;
}
