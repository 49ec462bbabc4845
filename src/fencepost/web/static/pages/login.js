// The form for the token. A link from another site brings no cookie along, so the page first tries without the form.
import { html, useEffect, useState } from "../view.js";
import { Prose } from "../parts/text.js";

export const isAlone = true;

// The address without a token in it, which may be a wrong one.
const here = () => {
  const address = new URL(location.href);
  address.searchParams.delete("token");
  return address.href;
};

export default function Login({ frame }) {
  const [problem, setProblem] = useState(frame.problem);
  useEffect(() => {
    fetch(here(), { method: "HEAD", headers: { Accept: "application/json" } }).then(
      (answer) => answer.status !== 401 && location.replace(here())
    );
  }, []);
  const enter = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token").trim();
    const answer = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Fencepost": "1" },
      body: JSON.stringify({ token }),
    });
    if (!answer.ok) setProblem(await answer.json());
    else if (here() === location.href) location.reload();
    else location.replace(here());
  };
  return html`<main id="content" class="login">
    <h1>Fencepost</h1>
    <form onSubmit=${enter}>
      <label>Token of this workbench <input name="token" type="password" autocomplete="off" required autofocus /></label>
      <button type="submit">Enter</button>
      <div role="alert">
        ${problem && html`<p><strong>${problem.error}</strong></p><p class="hint"><${Prose}>${problem.hint}<//></p>`}
      </div>
    </form>
  </main>`;
}
