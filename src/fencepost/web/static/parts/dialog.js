// Asks before an action and shows what it changed. The browser's own dialog keeps the focus and closes with Escape.
import { html, useEffect, useRef } from "../view.js";
import { Prose, visible } from "./text.js";

// `state`: {title, text, hint?, isDone?, isWaiting?, confirm?}. `confirm` is there while the user is asked.
export function ActionDialog({ state, onClose }) {
  const dialog = useRef(null);
  useEffect(() => {
    if (state && !dialog.current.open) dialog.current.showModal();
    if (!state && dialog.current.open) dialog.current.close();
  }, [state]);
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${onClose}>
    ${state &&
    html`<h2 id="dialog-title">${state.title}</h2>
      <div role="status">
        ${state.text.split("\n").map((line) => html`<p class="said"><${Prose}>${line}<//></p>`)}
      </div>
      ${state.hint && html`<p class="hint">${visible(state.hint)}</p>`}
      <div class="buttons">
        ${state.confirm &&
        html`<button type="button" class="dangerous" disabled=${state.isWaiting} onClick=${state.confirm}>
          ${state.title}
        </button>`}
        <button type="button" onClick=${onClose}>${state.confirm ? "Cancel" : "Close"}</button>
      </div>`}
  </dialog>`;
}
