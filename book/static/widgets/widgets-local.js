/* Loads Jupyter widgets from this folder instead of a CDN, at any page depth and from file://. */
(function () {
  const here = document.currentScript.src.replace(/[^/]*$/, "");
  document.currentScript.setAttribute("data-jupyter-widgets-cdn", here); // the loader's fallback stays local too
  requirejs.config({
    paths: {
      "@jupyter-widgets/html-manager/dist/libembed-amd": here + "libembed-amd",
      "@jupyter-widgets/html-manager": here + "html-manager",
      "@jupyter-widgets/base": here + "base",
      "@jupyter-widgets/controls": here + "controls",
      "anywidget": here + "anywidget",
    },
  });
})();
