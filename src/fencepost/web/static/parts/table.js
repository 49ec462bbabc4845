// Tables, with search and paging that the server does.
import { html, useEffect, useRef, useState } from "../view.js";
import { Scroll } from "./scroll.js";

// `columns`: [{title, cell(row), sort?, isNumber?}]. `sort`: the name in the query, `-name` for the other direction.
export function Table({ caption, columns, rows, keyOf, sort, onSort, empty = "nothing to show" }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<${Scroll} label=${caption}>
    <table>
      <caption class="visually-hidden">${caption}</caption>
      <thead>
        <tr>
          ${columns.map(
            (column) => html`<th
              scope="col"
              class=${column.isNumber ? "number" : ""}
              aria-sort=${direction(column, sort)}
            >
              ${column.sort && onSort
                ? html`<button type="button" class="sort" onClick=${() => onSort(nextSort(column, sort))}>
                    ${column.title}<span aria-hidden="true">${arrow(column, sort)}</span>
                  </button>`
                : column.title}
            </th>`
          )}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${keyOf ? keyOf(row) : undefined}>
            ${columns.map(
              (column) => html`<td class=${column.isNumber ? "number" : ""} data-title=${column.title}>
                ${column.cell(row)}
              </td>`
            )}
          </tr>`
        )}
      </tbody>
    </table>
  <//>`;
}

const direction = (column, sort) =>
  !column.sort ? undefined : sort === column.sort ? "ascending" : sort === `-${column.sort}` ? "descending" : "none";
const arrow = (column, sort) => ({ ascending: " ▲", descending: " ▼" })[direction(column, sort)] ?? "";
const nextSort = (column, sort) => (sort === column.sort ? `-${column.sort}` : column.sort);

// Asks the server a moment after the last key.
const TYPING_MS = 250;

export function Search({ label, value, onSearch }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  // What was asked and is not answered yet. An answer must not replace what was typed meanwhile.
  const asked = useRef([]);
  useEffect(() => {
    const answered = asked.current.indexOf(value);
    asked.current = answered < 0 ? [] : asked.current.slice(answered + 1);
    if (answered < 0) setText(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const search = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      asked.current.push(typed);
      onSearch(typed);
    }, TYPING_MS);
  };
  return html`<label class="search">${label} <input type="search" value=${text} onInput=${search} /></label>`;
}

export function Pager({ label = "Pages", page, pageCount, total, onPage }) {
  return html`<nav class="pager" aria-label=${label}>
    <button type="button" disabled=${page <= 1} onClick=${() => onPage(page - 1)}>Previous</button>
    <span>page ${page} of ${pageCount}, ${total.toLocaleString("en")} in all</span>
    <button type="button" disabled=${page >= pageCount} onClick=${() => onPage(page + 1)}>Next</button>
  </nav>`;
}
