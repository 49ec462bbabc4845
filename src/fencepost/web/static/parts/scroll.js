// A part that may be wider than the window. It shows at its edges that there is more, and the keyboard can scroll it then.
import { html, useEffect, useRef } from "../view.js";

export function Scroll({ label, kind = "", children }) {
  const box = useRef(null);
  useEffect(() => {
    const { current } = box;
    const look = () => {
      const hidden = current.scrollWidth - current.clientWidth;
      // Half a pixel may be left over from rounding.
      current.parentElement.dataset.left = current.scrollLeft > 1 ? "more" : "";
      current.parentElement.dataset.right = hidden - current.scrollLeft > 1 ? "more" : "";
      if (hidden > 1 || current.scrollHeight > current.clientHeight + 1) current.tabIndex = 0;
      else current.removeAttribute("tabindex");
    };
    const sizes = new ResizeObserver(look);
    [current, ...current.children].forEach((element) => sizes.observe(element));
    current.addEventListener("scroll", look, { passive: true });
    return () => {
      sizes.disconnect();
      current.removeEventListener("scroll", look);
    };
  }, []);
  return html`<div class="scroll-frame"><div ref=${box} class=${`scroll ${kind}`} role="region" aria-label=${label}>${children}</div></div>`;
}
