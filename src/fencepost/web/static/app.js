// The frame of every page: navigation, the state of the connection, and the live document that the page's own module draws.
import { Component, html, render, useEffect, useRef, useState } from "./view.js";
import { ActionDialog } from "./parts/dialog.js";
import { Name, Prose, visible } from "./parts/text.js";
import { clock } from "./parts/time.js";
import { errorAddress } from "./parts/links.js";

const RETRY_MS = 2000;
const meta = (name) => document.querySelector(`meta[name="${name}"]`).content;
const frame = JSON.parse(meta("fencepost-frame"));
const script = meta("fencepost-script");

const queryOf = (search) => Object.fromEntries([...new URLSearchParams(search)].filter(([name]) => name !== "format"));
const addressOf = (query) => {
  const search = new URLSearchParams(query).toString();
  return location.pathname + (search ? `?${search}` : "");
};

async function fetchJson(address, options = {}) {
  const response = await fetch(address, {
    ...options,
    headers: { Accept: "application/json", ...options.headers },
    cache: "no-store",
  });
  const found = await response.json();
  if (!response.ok) throw Object.assign(new Error(found.error), { problem: found, status: response.status });
  return found;
}

// Follows an address while the page is visible. Calls `tell` with {data} | {away} | {problem} | {lost}.
function follow(address, tell) {
  let source = null;
  let timer = 0;
  const open = () => {
    source = new EventSource(address);
    source.addEventListener("open", () => tell({ lost: null }));
    source.addEventListener("document", (event) => tell({ data: JSON.parse(event.data), away: null, problem: null }));
    source.addEventListener("away", (event) => tell({ away: JSON.parse(event.data) }));
    source.addEventListener("problem", (event) => tell({ problem: JSON.parse(event.data), away: null }));
    source.addEventListener("error", () => {
      tell({ lost: Date.now() });
      // The browser opens a stream that broke again by itself, but not one that the server refused.
      if (source?.readyState === EventSource.CLOSED) timer = setTimeout(open, RETRY_MS);
    });
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const seen = () => (document.hidden ? close() : source ?? open());
  document.addEventListener("visibilitychange", seen);
  seen();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    close();
  };
}

class Shield extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }
  render({ children }, { error }) {
    return error ? html`<${Problem} problem=${{ error: `this page failed: ${error.message}` }} />` : children;
  }
}

const Problem = ({ problem }) => html`<div class="banner danger" role="alert">
  <p><strong>${visible(problem.error)}</strong></p>
  ${problem.hint && html`<p><${Prose}>${problem.hint}<//></p>`}
  ${problem.error_code != null && html`<p><a href=${errorAddress(problem.error_code)}>What does this error mean?</a></p>`}
</div>`;

function Connection({ state }) {
  if (state.lost) return html`<span class="badge danger">✖ the workbench has not answered since ${clock(state.lost)}</span>`;
  if (state.away) return html`<span class="badge danger">✖ the cluster has been away since ${clock(state.away.since_ms)}</span>`;
  if (state.problem?.status === 404) return html`<span class="badge danger">✖ not found</span>`;
  if (state.problem) return html`<span class="badge danger">✖ no answer</span>`;
  if (!state.data) return html`<span class="badge muted">○ asking</span>`;
  return html`<span class="badge committed">● live</span>`;
}

const THEMES = { "": "system colours", light: "light", dark: "dark" };

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const choose = (event) => {
    const chosen = event.target.value;
    setTheme(chosen);
    if (chosen) {
      document.documentElement.dataset.theme = chosen;
      localStorage.setItem("fencepost-theme", chosen);
    } else {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("fencepost-theme");
    }
    window.dispatchEvent(new Event("fencepost-theme"));
  };
  return html`<label class="theme"><span class="visually-hidden">Colours</span>
    <select value=${theme} onChange=${choose}>
      ${Object.entries(THEMES).map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>
  </label>`;
}

const isHere = (href) =>
  href === "/" ? location.pathname === "/" : location.pathname === href || location.pathname.startsWith(`${href}/`);

function Header({ state, query }) {
  const json = addressOf({ ...query, format: "json" });
  return html`<header>
    <a class="skip" href="#content">Skip to the content</a>
    <div class="top">
      <span class="brand">Fencepost</span>
      <nav aria-label="Pages of the workbench">
        ${frame.navigation.map(
          ({ label, href }) => html`<a href=${href} aria-current=${isHere(href) ? "page" : undefined}>${label}</a>`
        )}
      </nav>
      <div class="status">
        ${frame.cluster && html`<${Name}>${frame.cluster}<//>`}
        <span role="status"><${Connection} state=${state} /></span>
        <a href=${json}>JSON</a>
        <${Theme} />
      </div>
    </div>
  </header>`;
}

function Frame({ Page }) {
  const [state, setState] = useState({ data: null, away: null, problem: null, lost: null });
  const [query, setQueryState] = useState(queryOf(location.search));
  const [dialog, setDialog] = useState(null);
  const address = addressOf(query);
  const current = useRef(address);
  current.current = address;

  useEffect(() => {
    const back = () => setQueryState(queryOf(location.search));
    window.addEventListener("popstate", back);
    return () => window.removeEventListener("popstate", back);
  }, []);

  useEffect(() => {
    const tell = (news) =>
      current.current === address &&
      setState((before) => ({ ...before, ...news, lost: "lost" in news ? news.lost && (before.lost ?? news.lost) : null }));
    fetchJson(address).then(
      (data) => tell({ data, problem: null }),
      (error) => tell(error.status === 503 ? {} : { problem: error.problem ?? { error: error.message } })
    );
    return follow(address, tell);
  }, [address]);

  // Changes some values of the query; null removes one. The address changes with it, so that it can be shared.
  const setQuery = (changes, isReplaced = false) => {
    const next = Object.fromEntries(Object.entries({ ...query, ...changes }).filter(([, value]) => value != null && value !== ""));
    history[isReplaced ? "replaceState" : "pushState"](null, "", addressOf(next));
    setQueryState(next);
  };

  const post = (body, more = {}) =>
    fetchJson(address, {
      ...more,
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Fencepost": "1" },
      body: JSON.stringify(body),
    });

  // Asks first, then acts: `act("abort", "Abort this transaction")`. Resolves with the answer, or null if not confirmed.
  const act = (action, title, given = {}) =>
    new Promise((resolve) => {
      const fail = (error) => setDialog({ title, text: error.message, hint: error.problem?.hint, resolve });
      // The server refuses a confirmation if it would now be about something else than what was shown.
      const confirm = async (about) => {
        setDialog((shown) => ({ ...shown, isWaiting: true }));
        try {
          const done = await post({ ...given, action, confirm: true, about });
          setDialog({ title, text: done.text, isDone: true, resolve: () => resolve(done) });
        } catch (error) {
          fail(error);
        }
      };
      setDialog({ title, text: "…", resolve });
      post({ ...given, action }).then(
        (would) => setDialog({ title, text: would.text, confirm: () => confirm(would.about), resolve }),
        fail
      );
    });
  // Acts without a question: for what is not part of the cluster, such as a demo.
  const actNow = (action, given = {}, more = {}) => post({ ...given, action, confirm: true }, more);

  const closeDialog = () => {
    dialog?.resolve?.(null);
    setDialog(null);
  };

  return html`<${Header} state=${state} query=${query} />
    <main id="content" tabindex="-1" class=${state.away || state.lost ? "stale" : ""}>
      ${state.away &&
      html`<div class="banner danger" role="alert">
        <p><strong>The cluster has been away since ${clock(state.away.since_ms)}.</strong></p>
        <p>${visible(state.away.error)}</p>
        ${state.away.hint && html`<p>${visible(state.away.hint)}</p>`}
      </div>`}
      ${state.problem && !state.data && html`<h1>${visible(document.title.replace(/ · Fencepost$/, ""))}</h1>`}
      ${state.problem && html`<${Problem} problem=${state.problem} />`}
      ${state.data
        ? html`<${Shield}>
            <${Page}
              data=${state.data} params=${frame.params} query=${query} setQuery=${setQuery}
              act=${act} actNow=${actNow} canAct=${frame.can_act} isLive=${!state.away && !state.lost}
            />
          <//>`
        : !state.problem && html`<p class="empty">asking the cluster …</p>`}
    </main>
    <${ActionDialog} state=${dialog} onClose=${closeDialog} />`;
}

// An address without a page: the navigation, and what to do.
const Missing = ({ problem }) => html`<${Header} state=${{ problem }} query=${queryOf(location.search)} />
  <main id="content" tabindex="-1">
    <h1>Not found</h1>
    <${Problem} problem=${problem} />
  </main>`;

if (!script) {
  render(html`<${Missing} problem=${frame.problem} />`, document.body);
} else {
  const { default: Page, isAlone } = await import(`./pages/${script}`);
  // The form for the token is a page without a document.
  render(isAlone ? html`<${Page} frame=${frame} />` : html`<${Frame} Page=${Page} />`, document.body);
}
