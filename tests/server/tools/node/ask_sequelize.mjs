// Sequelize: raw queries, models of tables that it did not make, and its query interface.
import { DataTypes, QueryTypes, Sequelize, col, fn } from "sequelize";
import { address, given, say, step, values, version } from "./steps.mjs";

function connect(options) {
  return new Sequelize(address.database, address.user, address.password, {
    dialect: "postgres",
    host: address.host,
    port: address.port,
    logging: false,
    ...options,
  });
}

const database = connect({ schema: "main" }); // its own default is public
const standard = connect({ dialectOptions: { options: "-c dpsql.implicit=on" } });
const rows = async (sql, options) => values(await database.query(sql, { type: QueryTypes.SELECT, ...options }));
const plain = { timestamps: false, freezeTableName: true };
const country = database.define(
  "countries",
  { country: { type: DataTypes.TEXT, primaryKey: true }, continent: DataTypes.TEXT, large: DataTypes.BOOLEAN },
  plain,
);
const inPublic = database.define(
  "countries",
  { country: { type: DataTypes.TEXT, primaryKey: true } },
  { ...plain, schema: "public" },
);
const read = standard.define(
  "reads",
  { user_id: { type: DataTypes.BIGINT, primaryKey: true }, article: DataTypes.TEXT },
  plain,
);

version("sequelize");
await step("connect", async () => (await database.authenticate()) ?? "connected");
await step("introspect", async () => {
  const interfaces = database.getQueryInterface();
  const tables = await interfaces.showAllTables();
  return {
    tables: tables.map((table) => table.tableName ?? table),
    columns: Object.keys(await interfaces.describeTable("reads", { schema: "main" })),
  };
});
await step("a table described without its schema", () => standard.getQueryInterface().describeTable("reads"));
await step("ask", () => rows(given.question));
await step("again", () => rows(given.question));
await step("public", () => rows(given.public));
await step("prepared", async () => {
  const answers = [];
  for (let time = 0; time < 3; time++) answers.push(await rows(given.numbered, { bind: ["DE"] }));
  return answers;
});
await step("refused", () => rows(given.refused));
await step("after", () => rows(given.question));
await step("transaction", () => database.transaction((transaction) => rows(given.question, { transaction })));
await step("models: a private query", async () =>
  values(
    await read.findAll({
      attributes: ["article", [fn("COUNT", fn("DISTINCT", col("user_id"))), "n"]],
      group: ["article"],
      order: [[col("n"), "DESC"]],
      limit: 3,
      raw: true,
    }),
  ),
);
await step("models: find", () => country.findAll({ order: ["country"], limit: 2, offset: 1, raw: true }));
await step("models: count", () => country.count());
await step("models: by key", async () => (await country.findByPk("DE")).continent);
await step("models: find and count", async () => (await country.findAndCountAll({ limit: 1, order: ["country"] })).count);
await step("models: in the schema public", () => inPublic.findAll({ order: ["country"], raw: true }));
await step("indexes", () => database.getQueryInterface().showIndex("countries"));
await database.close();
await standard.close();
