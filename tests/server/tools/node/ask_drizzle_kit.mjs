// drizzle-kit: its reading of tables, as `drizzle-kit pull` writes them.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { address, step, version } from "./steps.mjs";

const folder = mkdtempSync("pull-");

function pull() {
  const settings = {
    dialect: "postgresql",
    out: folder,
    schemaFilter: ["main"], // its own default is public
    dbCredentials: { ...address, ssl: false },
  };
  writeFileSync(`${folder}/config.mjs`, `export default ${JSON.stringify(settings)};`);
  execFileSync("node_modules/.bin/drizzle-kit", ["pull", "--config", `${folder}/config.mjs`], { stdio: "pipe" });
  const text = readFileSync(`${folder}/schema.ts`, "utf8");
  const tables = [...text.matchAll(/\.table\("(\w+)", \{([^}]*\})?/g)];
  const reads = text.slice(text.indexOf('"reads"')).split("});\n")[0];
  const columns = [...reads.matchAll(/^\t(\w+): \w+\((?:"(\w+)")?/gm)].map((found) => found[2] ?? found[1]);
  return { tables: tables.map((found) => found[1]), columns };
}

version("drizzle-kit");
await step("introspect", () => pull());
rmSync(folder, { recursive: true });
