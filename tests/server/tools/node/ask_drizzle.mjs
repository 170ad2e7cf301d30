// Drizzle with node-postgres: raw queries, tables that it did not make, and prepared statements.
import { count, countDistinct, desc, eq, ilike, inArray, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, boolean, pgSchema, pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";
import { address, given, say, step, values, version } from "./steps.mjs";

const pool = new pg.Pool({ ...address, max: 2 });
const strict = new pg.Pool({ ...address, max: 1, options: "-c dpsql.implicit=on" });
const database = drizzle(pool);
const standard = drizzle(strict);
const columns = { country: text("country").primaryKey(), continent: text("continent"), large: boolean("large") };
const countries = pgTable("countries", columns);
const qualified = pgSchema("main").table("countries", { country: text("country") });
const reads = pgTable("reads", { user: bigint("user_id", { mode: "number" }), article: text("article"), country: text("country") });
const rows = async (statement) => values((await database.execute(statement)).rows);

version("drizzle-orm");
await step("connect", () => rows("SELECT 1 AS one"));
await step("ask", () => rows(given.question));
await step("again", () => rows(given.question));
await step("public", () => rows(given.public));
await step("prepared", async () => {
  const [before, behind] = given.numbered.split("$1");
  const answers = [];
  for (let time = 0; time < 3; time++) answers.push(await rows(sql`${sql.raw(before)}${"DE"}${sql.raw(behind)}`));
  return answers;
});
await step("refused", () => rows(given.refused));
await step("after", () => rows(given.question));
await step("transaction", () =>
  database.transaction(async (inside) => values((await inside.execute(given.question)).rows), { accessMode: "read only" }),
);
await step("builder: a private query", async () =>
  values(
    await standard
      .select({ article: reads.article, n: countDistinct(reads.user) })
      .from(reads)
      .groupBy(reads.article)
      .orderBy(desc(countDistinct(reads.user)))
      .limit(3),
  ),
);
await step("builder: select", () => database.select().from(countries).orderBy(countries.country).limit(2).offset(1));
await step("builder: a prepared statement", () => {
  const one = database
    .select()
    .from(countries)
    .where(eq(countries.country, sql.placeholder("place")))
    .limit(sql.placeholder("most"))
    .prepare("one");
  return one.execute({ place: "DE", most: 1 });
});
await step("builder: in", () => database.select().from(countries).where(inArray(countries.country, ["DE", "TV"])));
await step("builder: ilike", () => database.select().from(countries).where(ilike(countries.continent, "%oce%")));
await step("builder: count", () => database.select({ n: count() }).from(countries));
await step("builder: $count", () => database.$count(countries));
await step("builder: schema", () => database.select().from(qualified));
await pool.end();
await strict.end();
