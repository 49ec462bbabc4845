// Loaded before the page is drawn, so that it does not flash in the wrong colours.
{
  const chosen = localStorage.getItem("fencepost-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
