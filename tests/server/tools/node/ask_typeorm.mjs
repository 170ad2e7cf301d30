// TypeORM: raw queries, entities of tables that it did not make, and its reading of tables.
import "reflect-metadata";
import { DataSource, EntitySchema, ILike } from "typeorm";
import { address, given, say, step, values, version } from "./steps.mjs";

const Country = new EntitySchema({
  name: "Country",
  tableName: "countries",
  columns: { country: { type: "text", primary: true }, continent: { type: "text" }, large: { type: "boolean" } },
});
const Read = new EntitySchema({
  name: "Read",
  tableName: "reads",
  columns: { user_id: { type: "bigint", primary: true }, article: { type: "text" }, country: { type: "text" } },
});

function open(extra) {
  return new DataSource({ type: "postgres", ...address, username: address.user, entities: [Country, Read], extra });
}

const source = open({});
const standard = open({ options: "-c dpsql.implicit=on" });
const rows = async (sql, bound) => values(await source.query(sql, bound));

version("typeorm");
await step("connect", async () => (await source.initialize()).isInitialized);
await step("introspect", async () => {
  const runner = source.createQueryRunner();
  try {
    const tables = await runner.getTables(["reads", "countries"]);
    const reads = tables.find((table) => table.name.split(".").at(-1) === "reads");
    return { tables: tables.map((table) => table.name), columns: reads.columns.map((column) => column.name) };
  } finally {
    await runner.release();
  }
});
await step("ask", () => rows(given.question));
await step("again", () => rows(given.question));
await step("public", () => rows(given.public));
await step("prepared", async () => {
  const answers = [];
  for (let time = 0; time < 3; time++) answers.push(await rows(given.numbered, ["DE"]));
  return answers;
});
await step("refused", () => rows(given.refused));
await step("after", () => rows(given.question));
await step("transaction", () => source.transaction(async (manager) => values(await manager.query(given.question))));
await standard.initialize();
await step("entities: a private query", async () =>
  values(
    await standard
      .getRepository(Read)
      .createQueryBuilder("r")
      .select("r.article", "article")
      .addSelect("COUNT(DISTINCT r.user_id)", "n")
      .groupBy("r.article")
      .orderBy("n", "DESC")
      .limit(3)
      .getRawMany(),
  ),
);
const countries = source.getRepository(Country);
await step("entities: find", () => countries.find({ order: { country: "ASC" }, take: 2, skip: 1 }));
await step("entities: count", () => countries.count());
await step("entities: one", () => countries.findOneBy({ country: "DE" }));
await step("entities: ilike", () => countries.findBy({ continent: ILike("%oce%") }));
await step("entities: exists", () => countries.existsBy({ large: true }));
await source.destroy();
await standard.destroy();
