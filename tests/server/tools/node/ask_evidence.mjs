// Evidence: its connector of PostgreSQL, as a page's build uses it.
import * as evidence from "@evidence-dev/postgres";
import { address, given, say, step, values, version } from "./steps.mjs";

const plain = { ...address, ssl: false };

async function run(sql) {
  const found = await evidence.default(sql, plain, 100_000);
  const rows = [];
  if (Array.isArray(found.rows)) return { ...found, rows: values(found.rows) };
  for await (const batch of found.rows()) rows.push(...batch);
  return { ...found, rows: values(rows) };
}

version("@evidence-dev/postgres");
await step("connect", async () => {
  const found = await evidence.testConnection(plain);
  if (found !== true) throw new Error(found.reason ?? JSON.stringify(found));
  return found;
});
await step("ask", async () => (await run(given.question)).rows);
await step("again", async () => (await run(given.question)).rows);
await step("columns", async () => (await run(given.question)).columnTypes);
await step("public", async () => (await run(given.public)).rows);
await step("refused", () => run(given.refused));
await step("after", async () => (await run(given.question)).rows);
process.exit(0); // it keeps the connection of a query that failed
