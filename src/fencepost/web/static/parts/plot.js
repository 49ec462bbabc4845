// A live plot over time, with uPlot. It is drawn on a canvas, so `label` says what it shows, and the numbers of the
// last moment stand beside it as text.
import { html, useEffect, useRef } from "../view.js";
import { clock } from "./time.js";
import uPlot from "../vendor/uplot/uPlot.esm.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// `series`: [{label, colour: the name of a custom property, dash?}]. `columns`: [seconds, values, values, …].
// The plot always spans `seconds`, so that it does not stretch while it fills.
export function Plot({ label, series, columns, seconds = 120, height = 180 }) {
  const place = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const axis = { stroke: colour("text"), grid: { stroke: colour("line") }, ticks: { stroke: colour("line") } };
      const options = {
        width: place.current.clientWidth,
        height,
        cursor: { show: false },
        legend: { show: false },
        scales: {
          x: { range: (_, low, high) => [(high ?? Date.now() / 1000) - seconds, high ?? Date.now() / 1000] },
          y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1) * 1.1] },
        },
        axes: [{ ...axis, space: 90, values: (_, moments) => moments.map((s) => clock(s * 1000)) }, { ...axis, size: 50 }],
        series: [
          {},
          ...series.map((one) => ({
            label: one.label,
            stroke: colour(one.colour),
            width: 2,
            dash: one.dash,
            points: { show: false },
          })),
        ],
      };
      plot.current = new uPlot(options, columns, place.current);
    };
    make();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: place.current.clientWidth, height }));
    resized.observe(place.current);
    window.addEventListener("fencepost-theme", make);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    return () => {
      resized.disconnect();
      window.removeEventListener("fencepost-theme", make);
      dark.removeEventListener("change", make);
      plot.current.destroy();
    };
  }, []);
  useEffect(() => plot.current.setData(columns), [columns]);
  return html`<div class="plot" role="img" aria-label=${label} ref=${place}></div>`;
}
