// postgres.js as a program uses it; prints a line of JSON for each step: its name, and its value or its error.
import { readFileSync } from "node:fs";
import postgres from "postgres";

const given = Object.fromEntries(process.argv.slice(2).map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
const notices = [];
const options = {
  host: given.host,
  port: Number(given.port),
  user: given.user,
  password: given.password,
  database: given.database,
  ssl: given.root ? { ca: readFileSync(given.root, "utf8"), servername: "localhost" } : false,
  max: 2,
  onnotice: (notice) => notices.push(notice.severity),
};
const sql = postgres(options);

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

await step("simple", () => sql.unsafe(given.question).simple().values());
await step("prepared", () => sql.unsafe(given.question, [], { prepare: true }).values());
await step("again", () => sql.unsafe(given.question, [], { prepare: true }).values());
await step("described", async () => (await sql.unsafe(given.described).describe()).columns.map((column) => [column.name, column.type]));
await step("parameter", () => sql.unsafe(given.numbered, ["DE"]).values());
await step("wrapped", () => sql.unsafe(given.wrapped).values());
await step("cursor", async () => {
  const all = [];
  for await (const rows of sql.unsafe(given.question).cursor(2)) {
    all.push(...rows.map((row) => Object.values(row)));
  }
  return all;
});
await step("transaction", () => sql.begin("read only", (inside) => inside.unsafe(given.question).values()));
await step("pipelined", () => Promise.all(Array.from({ length: 12 }, () => sql.unsafe(given.question).values())));
for (const name of ["not private", "syntax", "write", "dear"]) {
  await step(name, () => sql.unsafe(given[name]).values());
}
await step("after", () => sql.unsafe(given.question).values());
await step("cancelled", async () => {
  const asking = sql.unsafe(given.slow).execute();
  setTimeout(() => asking.cancel(), 300);
  return await asking;
});
await step("after cancel", () => sql.unsafe(given.question).values());
say("notices", { value: notices });
await sql.end();
await step("wrong password", async () => {
  const other = postgres({ ...options, password: "wrong", max: 1 });
  try {
    return await other.unsafe("SELECT 1").values();
  } finally {
    await other.end();
  }
});
