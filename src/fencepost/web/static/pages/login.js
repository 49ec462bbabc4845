// The form for the token. A link from another site brings no cookie along, so the page first tries without the form.
import { html, useEffect, useState } from "../view.js";

export const isAlone = true;

export default function Login() {
  const [problem, setProblem] = useState("");
  useEffect(() => {
    fetch(location.href, { method: "HEAD", headers: { Accept: "application/json" } }).then(
      (answer) => answer.status !== 401 && location.reload()
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
    if (answer.ok) location.reload();
    else setProblem((await answer.json()).error);
  };
  return html`<main id="content" class="login">
    <h1>Fencepost</h1>
    <form onSubmit=${enter}>
      <label>Token of this workbench <input name="token" type="password" autocomplete="off" required autofocus /></label>
      <button type="submit">Enter</button>
      <p role="alert" class="said">${problem}</p>
    </form>
  </main>`;
}
