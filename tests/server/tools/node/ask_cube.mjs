// Cube: its driver of PostgreSQL.
import cube from "@cubejs-backend/postgres-driver";
import { address, given, say, step, values, version } from "./steps.mjs";

const { PostgresDriver } = cube;
const driver = new PostgresDriver({ ...address, max: 2 });

version("@cubejs-backend/postgres-driver");
await step("connect", async () => (await driver.testConnection()) ?? "connected");
await step("introspect", async () => {
  const schemas = await driver.tablesSchema();
  return {
    tables: Object.values(schemas).flatMap((tables) => Object.keys(tables)),
    columns: Object.values(schemas).find((tables) => "reads" in tables).reads.map((column) => column.name),
  };
});
await step("ask", async () => values(await driver.query(given.question, [])));
await step("again", async () => values(await driver.query(given.question, [])));
await step("public", async () => values(await driver.query(given.public, [])));
await step("prepared", async () => {
  const answers = [];
  for (let time = 0; time < 3; time++) answers.push(values(await driver.query(given.numbered, ["DE"])));
  return answers;
});
await step("refused", () => driver.query(given.refused, []));
await step("after", async () => values(await driver.query(given.question, [])));
await step("download", async () => values((await driver.downloadQueryResults(given.question, [], { highWaterMark: 100 })).rows));
await step("schemas", () => driver.getSchemas());
await step("tables of schemas", () => driver.getTablesForSpecificSchemas([{ schema_name: "main" }]));
await driver.release();
