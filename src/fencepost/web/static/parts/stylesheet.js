// Loads the stylesheet of a part once, when the part is first drawn.
import { useEffect } from "../view.js";

export function useStylesheet(url) {
  useEffect(() => {
    if ([...document.styleSheets].some((sheet) => sheet.href === url.href)) return;
    if (document.querySelector(`link[data-part="${url.pathname}"]`)) return;
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = url.href;
    link.dataset.part = url.pathname;
    document.head.append(link);
  }, [url.href]);
}
