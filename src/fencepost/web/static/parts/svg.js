// Helpers for diagrams. Colours come from the classes of style.css; hatching tells kinds apart without colour.
import { html } from "../view.js";

// A function from values to places: scale([0, 10], [0, 200])(5) is 100.
export const scale =
  ([from, to], [start, end]) =>
  (value) =>
    to === from ? start : start + ((value - from) / (to - from)) * (end - start);

// Put this once into an SVG; then class="hatched" fills with `url(#hatch-open)` and so on.
export const Hatches = () => html`<defs>
  ${["open", "aborted", "fenced"].map(
    (kind) => html`<pattern id=${`hatch-${kind}`} width="6" height="6" patternUnits="userSpaceOnUse"
      patternTransform=${kind === "aborted" ? "rotate(-45)" : "rotate(45)"}>
      <rect width="6" height="6" class=${`fill-${kind}`} opacity="0.35" />
      <rect width="2.5" height="6" class=${`fill-${kind}`} />
    </pattern>`
  )}
</defs>`;
