// Knex: raw queries, its builder, its reading of columns, and its cancelling of what takes too long.
import knex from "knex";
import { address, given, say, step, values, version } from "./steps.mjs";

const database = knex({ client: "pg", connection: address, pool: { min: 1, max: 3 } });
const standard = knex({ client: "pg", connection: { ...address, options: "-c dpsql.implicit=on" } });
const rows = async (sql, bound = []) => values((await database.raw(sql, bound)).rows);

version("knex");
await step("connect", () => rows("SELECT 1 AS one"));
await step("introspect", async () => {
  const tables = (await database.schema.hasTable("countries")) ? ["countries"] : [];
  if (await database.schema.hasTable("reads")) tables.push("reads");
  return { tables, columns: Object.keys(await database("reads").columnInfo()) };
});
await step("ask", () => rows(given.question));
await step("again", () => rows(given.question));
await step("public", () => rows(given.public));
await step("prepared", async () => {
  const answers = [];
  for (let time = 0; time < 3; time++) answers.push(await rows(given.marked, ["DE"]));
  return answers;
});
await step("refused", () => rows(given.refused));
await step("cancel", () => database.raw(given.slow).timeout(300, { cancel: true }));
await step("after", () => rows(given.question));
await step("transaction", () =>
  database.transaction(async (inside) => values((await inside.raw(given.question)).rows)),
);
await step("builder: a private query", async () =>
  values(await standard("reads").select("article").countDistinct("user_id as n").groupBy("article").orderBy("n", "desc").limit(3)),
);
await step("builder: select", () => database("countries").select("country").orderBy("country").limit(2).offset(1));
await step("builder: first", () => database("countries").where({ country: "DE" }).first());
await step("builder: count", () => database("countries").count());
await step("builder: whereIn", () => database("countries").whereIn("country", ["DE", "TV"]).pluck("country"));
await step("builder: whereILike", () => database("countries").whereILike("continent", "%oce%").pluck("country"));
await step("builder: schema", () => database.withSchema("main").from("countries").pluck("country"));
await step("builder: stream", async () => {
  const all = [];
  for await (const row of database("countries").select("country").orderBy("country").stream()) all.push(row.country);
  return all;
});
await database.destroy();
await standard.destroy();
