<?php
// PHP: PDO, which prepares statements by the protocol or writes values itself, and the functions of pgsql.
$given = [];
foreach (array_slice($argv, 1) as $word) {
    [$name, $value] = explode("=", $word, 2);
    $given[$name] = $value;
}

function say(string $step, array $told): void
{
    echo json_encode(["step" => $step, ...$told]), "\n";
}

function step(string $name, callable $run): void
{
    try {
        say($name, ["value" => $run()]);
    } catch (Throwable $error) {
        $state = $error instanceof PDOException ? ($error->errorInfo[0] ?? null) : null;
        say($name, ["state" => $state, "message" => $error->getMessage()]);
    }
}

function rows(PDO $database, string $sql, array $bound = []): array
{
    $statement = $database->prepare($sql);
    $statement->execute($bound);
    return $statement->fetchAll(PDO::FETCH_NUM);
}

say("version", ["value" => PHP_VERSION]);
$address = "pgsql:host={$given['host']};port={$given['port']};dbname={$given['database']}";
step("connect", function () use (&$database, $address, $given) {
    $database = new PDO($address, $given["user"], $given["password"]);
    return $database->getAttribute(PDO::ATTR_SERVER_VERSION);
});
$raw = pg_connect("host={$given['host']} port={$given['port']} dbname={$given['database']} user={$given['user']} password='{$given['password']}'");
step("introspect", function () use ($raw, $database) {
    $tables = $database->query("SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')");
    return ["tables" => $tables->fetchAll(PDO::FETCH_COLUMN), "columns" => array_keys(pg_meta_data($raw, "main.reads"))];
});
step("a table described without its schema", fn () => count(pg_meta_data($raw, "reads") ?: throw new Exception("no such table")));
step("ask", fn () => rows($database, $given["question"]));
step("again", fn () => $database->query($given["question"])->fetchAll(PDO::FETCH_NUM));
step("public", fn () => rows($database, $given["public"]));
step("prepared", function () use ($database, $given) {
    $statement = $database->prepare($given["marked"]);
    $answers = [];
    for ($time = 0; $time < 3; $time++) {
        $statement->execute(["DE"]);
        $answers[] = $statement->fetchAll(PDO::FETCH_NUM);
    }
    return $answers;
});
step("refused", fn () => rows($database, $given["refused"]));
step("cancel", function () use ($raw, $given) {
    pg_send_query($raw, $given["slow"]);
    usleep(300000);
    pg_cancel_query($raw);
    return pg_get_result($raw);  // false: it discards what the server says
});
step("after", fn () => rows($database, $given["question"]));
step("transaction", function () use ($database, $given) {
    $database->beginTransaction();
    $found = rows($database, $given["question"]);
    $database->commit();
    return $found;
});
step("values written by PDO", function () use ($database, $given) {
    $database->setAttribute(PDO::ATTR_EMULATE_PREPARES, true);
    $found = rows($database, $given["marked"], ["DE"]);
    $database->setAttribute(PDO::ATTR_EMULATE_PREPARES, false);
    return $found;
});
step("cursor", function () use ($database, $given) {
    $statement = $database->prepare($given["public"], [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
    $statement->execute();
    $found = [$statement->fetch(PDO::FETCH_NUM), $statement->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_NEXT)];
    return [...$found, $statement->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_PRIOR)];
});
step("pg_select", fn () => pg_select($raw, "countries", ["country" => "DE"]));
step("pg_query_params", fn () => pg_fetch_all(pg_query_params($raw, $given["numbered"], ["DE"])));
step("column type", fn () => $database->query("SELECT country FROM countries")->getColumnMeta(0)["native_type"]);
