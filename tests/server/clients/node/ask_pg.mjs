// node-postgres as a program uses it; prints a line of JSON for each step: its name, and its value or its error.
import { readFileSync } from "node:fs";
import pg from "pg";
import Cursor from "pg-cursor";

const given = Object.fromEntries(process.argv.slice(2).map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
const address = {
  host: given.host,
  port: Number(given.port),
  user: given.user,
  password: given.password,
  database: given.database,
  ssl: given.root ? { ca: readFileSync(given.root, "utf8"), servername: "localhost" } : false,
};

function say(step, told) {
  console.log(JSON.stringify({ step, ...told }));
}

async function step(name, run) {
  try {
    say(name, { value: await run() });
  } catch (error) {
    say(name, { state: error.code, message: error.message, hint: error.hint, position: error.position });
  }
}

const client = new pg.Client(address);
const notices = [];
client.on("notice", (notice) => notices.push(notice.severity));
await client.connect();
await step("simple", async () => (await client.query({ text: given.question, rowMode: "array" })).rows);
await step("columns", async () => (await client.query(given.question)).fields.map((field) => [field.name, field.dataTypeID]));
await step("prepared", async () => {
  const answers = [];
  for (let time = 0; time < 3; time++) {
    answers.push((await client.query({ name: "q", text: given.question, rowMode: "array" })).rows);
  }
  return answers;
});
await step("parameter", async () => (await client.query({ text: given.numbered, values: ["DE"], rowMode: "array" })).rows);
await step("binary", async () => (await client.query({ text: given.question, values: [], binary: true, rowMode: "array" })).rows);
await step("wrapped", async () => (await client.query({ text: given.wrapped, rowMode: "array" })).rows);
await step("bound", async () => {
  const answer = await client.query({ text: given.bound, values: [7, 1.5, true, "ü", null], rowMode: "array" });
  return answer.rows[0];
});
await step("cursor", async () => {
  const cursor = client.query(new Cursor(given.question, [], { rowMode: "array" }));
  const all = [];
  for (let rows = await cursor.read(2); rows.length; rows = await cursor.read(2)) {
    all.push(...rows);
  }
  await cursor.close();
  return all;
});
await step("several", async () => (await client.query(`BEGIN; ${given.question}; COMMIT`)).map((one) => one.command));
for (const name of ["not private", "syntax", "write", "dear"]) {
  await step(name, () => client.query(given[name]));
}
await step("in a failed transaction", async () => {
  await client.query("BEGIN");
  await client.query(given.syntax).catch(() => undefined);
  try {
    return await client.query(given.question);
  } finally {
    await client.query("ROLLBACK");
  }
});
await step("after", async () => (await client.query({ text: given.question, rowMode: "array" })).rows);
say("notices", { value: notices });
await client.end();

const pool = new pg.Pool({ ...address, max: 4 });
await step("pool", async () => {
  const asked = Array.from({ length: 12 }, () => pool.query({ text: given.question, rowMode: "array" }));
  return (await Promise.all(asked)).map((one) => one.rows);
});
await pool.end();
await step("wrong password", async () => {
  const other = new pg.Client({ ...address, password: "wrong" });
  other.on("error", () => undefined);
  await other.connect();
});
