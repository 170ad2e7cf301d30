//! Rust: tokio-postgres; says a line of JSON for each step.
use serde_json::{json, Value};
use std::{collections::HashMap, env, time::Duration};
use tokio_postgres::{types::Type, Client, Error, NoTls, Row, SimpleQueryMessage};

fn say(step: &str, mut told: Value) {
    told["step"] = json!(step);
    println!("{told}");
}

fn step(name: &str, result: Result<Value, Error>) {
    match result {
        Ok(value) => say(name, json!({ "value": value })),
        Err(error) => {
            let state = error.code().map(|code| code.code().to_string());
            let message = error.as_db_error().map_or(error.to_string(), |one| one.message().to_string());
            say(name, json!({ "state": state, "message": message }));
        }
    }
}

fn cell(row: &Row, at: usize) -> Value {
    match row.columns()[at].type_() {
        &Type::INT8 => json!(row.get::<_, Option<i64>>(at)),
        &Type::INT4 => json!(row.get::<_, Option<i32>>(at)),
        &Type::BOOL => json!(row.get::<_, Option<bool>>(at)),
        &Type::FLOAT8 => json!(row.get::<_, Option<f64>>(at)),
        _ => json!(row.get::<_, Option<String>>(at)),
    }
}

fn values(rows: Vec<Row>) -> Value {
    rows.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect::<Vec<_>>()).collect()
}

async fn extended(client: &Client, sql: &str) -> Result<Value, Error> {
    client.query(sql, &[]).await.map(values)
}

async fn simple(client: &Client, sql: &str) -> Result<Value, Error> {
    let mut rows = Vec::new();
    for message in client.simple_query(sql).await? {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|at| json!(row.get(at))).collect::<Vec<_>>());
        }
    }
    Ok(json!(rows))
}

async fn prepared(client: &Client, sql: &str) -> Result<Value, Error> {
    let statement = client.prepare(sql).await?;
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(values(client.query(&statement, &[&"DE"]).await?));
    }
    Ok(json!(answers))
}

async fn cancelled(client: &Client, sql: &str) -> Result<Value, Error> {
    let token = client.cancel_token();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        token.cancel_query(NoTls).await.expect("the cancel request is sent");
    });
    extended(client, sql).await
}

async fn in_transaction(client: &mut Client, sql: &str) -> Result<Value, Error> {
    let inside = client.build_transaction().read_only(true).start().await?;
    let found = values(inside.query(sql, &[]).await?);
    inside.commit().await?;
    Ok(found)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let given: HashMap<String, String> = env::args()
        .skip(1)
        .filter_map(|word| word.split_once('=').map(|(name, value)| (name.into(), value.into())))
        .collect();
    let mut config = tokio_postgres::Config::new();
    config.host(&given["host"]).port(given["port"].parse().expect("a number")).user(&given["user"]);
    config.password(&given["password"]).dbname(&given["database"]);
    let mut client = match config.connect(NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            client
        }
        Err(error) => return step("connect", Err(error)),
    };
    step("connect", Ok(json!("connected")));
    step("ask", extended(&client, &given["question"]).await);
    step("again", simple(&client, &given["question"]).await);
    step("public", simple(&client, &given["public"]).await);
    step("prepared", prepared(&client, &given["numbered"]).await);
    step("refused", extended(&client, &given["refused"]).await);
    step("cancel", cancelled(&client, &given["slow"]).await);
    step("after", extended(&client, &given["question"]).await);
    step("transaction", in_transaction(&mut client, &given["question"]).await);
    step("public, binary", extended(&client, "SELECT country, large FROM countries ORDER BY country").await);
}
