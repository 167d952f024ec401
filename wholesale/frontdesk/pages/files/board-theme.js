/*
 * Light, dark, or what the device prefers: set before anything is painted, so that nothing flashes.
 * A classic script for that reason; modules run later.
 */
"use strict";

(() => {
  const KEY = "newsfabric_board_theme";
  const THEMES = ["auto", "light", "dark"];

  function recalled() {
    try {
      const theme = localStorage.getItem(KEY);
      return theme !== null && THEMES.includes(theme) ? theme : "auto";
    } catch {
      return "auto"; // storage may be denied
    }
  }

  function apply(theme) {
    document.documentElement.dataset.theme = theme;
  }

  function choose(theme) {
    apply(theme);
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // Only the convenience is lost.
    }
    document.dispatchEvent(new CustomEvent("themechange"));
  }

  apply(recalled());
  document.addEventListener("DOMContentLoaded", () => {
    for (const choice of document.querySelectorAll("input[name=theme]")) {
      choice.checked = choice.value === recalled();
      choice.addEventListener("change", () => choose(choice.value));
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      document.dispatchEvent(new CustomEvent("themechange")),
    );
  });
})();
