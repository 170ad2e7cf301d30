// What every session in JavaScript says: a line of JSON for each step, with its value or its error.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

export const given = Object.fromEntries(
  process.argv.slice(2).map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]),
);
export const address = {
  host: given.host,
  port: Number(given.port),
  user: given.user,
  password: given.password,
  database: given.database,
};

export function say(step, told) {
  console.log(JSON.stringify({ step, ...told }));
}

export async function step(name, run) {
  try {
    say(name, { value: await run() });
  } catch (error) {
    const causes = [];
    for (let one = error; one && !causes.includes(one); one = one.cause ?? one.original ?? one.driverError) {
      causes.push(one);
    }
    say(name, {
      state: causes.map((one) => one.code).find((code) => /^[0-9A-Z]{5}$/.test(code)),
      message: causes.map((one) => one.message).join("; "),
    });
  }
}

export function version(name) {
  const require = createRequire(import.meta.url);
  const manifest = require.resolve.paths(name).map((folder) => `${folder}/${name}/package.json`);
  for (const file of manifest) {
    try {
      say("version", { value: JSON.parse(readFileSync(file, "utf8")).version });
      return;
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
  }
}

export const values = (rows) => rows.map((row) => (Array.isArray(row) ? row : Object.values(row)));
