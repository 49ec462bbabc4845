// Preact, its hooks and htm, from one place. Preact escapes text; nothing here ever becomes HTML by itself.
export * from "./vendor/htm/preact-standalone.module.js";
