// Everything beside this page's own address, so that a stage or a base path changes nothing. A key
// that is entered lives in this tab's memory: it is gone with a reload.
SwaggerUIBundle({
  url: new URL("openapi.json", location.href).href,
  dom_id: "#page",
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  defaultModelExpandDepth: 2,
  persistAuthorization: false,
  validatorUrl: null,
});
