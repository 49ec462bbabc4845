// Loads the stylesheet of a module, which awaits it: nothing is drawn without its style.
export function stylesheet(url) {
  return new Promise((done) => {
    if (document.querySelector(`link[data-part="${url.pathname}"]`)?.sheet) return done();
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = url.href;
    link.dataset.part = url.pathname;
    link.onload = link.onerror = done;
    document.head.append(link);
  });
}
