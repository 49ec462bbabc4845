// A list that the server searches, sorts and cuts: the search box, the column heads that sort, and the pages.

import { html, useEffect, useState } from "../vendor/htm/preact-standalone.module.js";

const SEARCH_AFTER_MS = 250;

/** `words`: the names of the words in the query, where a page has several lists. */
export function Search({ label, paged, query, setQuery, words = { search: "search", page: "page" } }) {
  const [text, setText] = useState(paged.search);
  useEffect(() => {
    if (text.trim() === paged.search) return undefined;
    const timer = setTimeout(() => {
      const { [words.page]: _, ...rest } = query;
      setQuery({ ...rest, [words.search]: text.trim() || undefined });
    }, SEARCH_AFTER_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<form role="search" onSubmit=${(event) => event.preventDefault()}>
    <label>${label} <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} autocomplete="off" /></label>
  </form>`;
}

/** The head of a column that sorts the list; `largestFirst` for the first click on a column of numbers. */
export function Sorting({ name, paged, query, setQuery, largestFirst = false, children }) {
  const column = paged.sort.replace(/^-/, "");
  const isDown = paged.sort.startsWith("-");
  const isOn = column === name;
  const next = isOn ? (isDown ? name : `-${name}`) : largestFirst ? `-${name}` : name;
  return html`<th scope="col" aria-sort=${isOn ? (isDown ? "descending" : "ascending") : undefined}>
    <button class="link" onClick=${() => setQuery({ ...query, sort: next, page: undefined })}>
      ${children} <span aria-hidden="true">${isOn ? (isDown ? "▾" : "▴") : ""}</span>
    </button>
  </th>`;
}

export function Pages({ paged, query, setQuery, what, words = { search: "search", page: "page" } }) {
  const to = (page) => setQuery({ ...query, [words.page]: page === 1 ? undefined : page });
  const many = paged.found === paged.total ? `${paged.total}` : `${paged.found} of ${paged.total}`;
  return html`<nav class="turning" aria-label="Pages of ${what}">
    <button onClick=${() => to(paged.page - 1)} disabled=${paged.page <= 1}>← previous</button>
    <span role="status">${many} ${what}, page ${paged.page} of ${paged.pages}</span>
    <button onClick=${() => to(paged.page + 1)} disabled=${paged.page >= paged.pages}>next →</button>
  </nav>`;
}
