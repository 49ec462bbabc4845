// Preact, its hooks and htm, from one place. Preact escapes text; nothing here ever becomes HTML by itself.
import htm from "./vendor/htm/htm.module.js";
import { h } from "./vendor/htm/preact-standalone.module.js";

export * from "./vendor/htm/preact-standalone.module.js";

// htm keeps elements that never change, and Preact writes their first parents into them. So they would hold the first
// document of a page, and its rows, for as long as the page is open. The first line turns that off.
export const html = htm.bind(function (type, props, ...children) {
  this[0] = 3;
  return h(type, props, ...children);
});
