(function () {
  var root = document.documentElement, button = document.getElementById("theme"), kept = null;
  try { kept = localStorage.getItem("theme"); } catch (e) { /* a file: page may have no storage */ }
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  button.hidden = false;
  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function say() { button.setAttribute("aria-label", dark() ? "Use light colours" : "Use dark colours"); }
  button.addEventListener("click", function () {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (e) { /* then it is not kept */ }
    say();
  });
  say();
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (d) { d.dataset.was = d.open ? "1" : ""; d.open = true; });
  });
  addEventListener("afterprint", function () {
    document.querySelectorAll("details").forEach(function (d) { d.open = d.dataset.was === "1"; });
  });
})();
