// Go: pgx and database/sql with lib/pq; says a line of JSON for each step of the driver that the word `driver` names.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/stdlib"
	"github.com/lib/pq"
)

var given = map[string]string{}

func say(step string, told map[string]any) {
	told["step"] = step
	line, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func step(name string, run func() (any, error)) {
	value, err := run()
	if err == nil {
		say(name, map[string]any{"value": value})
		return
	}
	state := ""
	var fromPgx *pgconn.PgError
	var fromPq *pq.Error
	if errors.As(err, &fromPgx) {
		state = fromPgx.Code
	} else if errors.As(err, &fromPq) {
		state = string(fromPq.Code)
	}
	say(name, map[string]any{"state": state, "message": err.Error()})
}

func address() string {
	place := url.URL{
		Scheme: "postgres", User: url.UserPassword(given["user"], given["password"]),
		Host: given["host"] + ":" + given["port"], Path: "/" + given["database"], RawQuery: "sslmode=disable",
	}
	return place.String()
}

func briefly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 300*time.Millisecond)
}

func readRows(rows pgx.Rows, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := [][]any{}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		all = append(all, values)
	}
	return all, rows.Err()
}

func readSQL(rows *sql.Rows, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	all := [][]any{}
	for rows.Next() {
		values, places := make([]any, len(names)), make([]any, len(names))
		for at := range values {
			places[at] = &values[at]
		}
		if err := rows.Scan(places...); err != nil {
			return nil, err
		}
		for at, value := range values {
			if text, ok := value.([]byte); ok {
				values[at] = string(text)
			}
		}
		all = append(all, values)
	}
	return all, rows.Err()
}

func times(count int, run func() (any, error)) (any, error) {
	all := []any{}
	for ; count > 0; count-- {
		one, err := run()
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func askWithPgx() {
	background := context.Background()
	connection, err := pgx.Connect(background, address())
	step("connect", func() (any, error) { return "connected", err })
	if err != nil {
		return
	}
	defer connection.Close(background)
	rows := func(text string, bound ...any) (any, error) { return readRows(connection.Query(background, text, bound...)) }
	simply := func(text string) (any, error) {
		return readRows(connection.Query(background, text, pgx.QuerySimpleProtocol(true)))
	}
	step("ask", func() (any, error) { return rows(given["question"]) })
	step("again", func() (any, error) { return simply(given["question"]) })
	step("public", func() (any, error) { return simply(given["public"]) })
	step("public, binary", func() (any, error) { return rows("SELECT country, large FROM countries ORDER BY country") })
	step("prepared", func() (any, error) {
		if _, err := connection.Prepare(background, "by place", given["numbered"]); err != nil {
			return nil, err
		}
		return times(3, func() (any, error) { return rows("by place", "DE") })
	})
	step("refused", func() (any, error) { return rows(given["refused"]) })
	step("after", func() (any, error) { return rows(given["question"]) })
	step("transaction", func() (any, error) {
		inside, err := connection.BeginTx(background, pgx.TxOptions{AccessMode: pgx.ReadOnly})
		if err != nil {
			return nil, err
		}
		defer inside.Rollback(background)
		return readRows(inside.Query(background, given["question"]))
	})
	step("batch", func() (any, error) {
		batch := &pgx.Batch{}
		batch.Queue(given["question"])
		batch.Queue("SELECT country FROM countries WHERE country = $1", "DE")
		results := connection.SendBatch(background, batch)
		defer results.Close()
		if _, err := readRows(results.Query()); err != nil {
			return nil, err
		}
		return readRows(results.Query())
	})
	step("copy", func() (any, error) {
		var text strings.Builder
		tag, err := connection.PgConn().CopyTo(background, &text, "COPY ("+given["question"]+") TO STDOUT")
		return tag.String(), err
	})
}

func askWithSQL(driver string) {
	database, err := sql.Open(driver, address())
	if err == nil {
		err = database.Ping()
	}
	step("connect", func() (any, error) { return "connected", err })
	if err != nil {
		return
	}
	defer database.Close()
	rows := func(text string, bound ...any) (any, error) { return readSQL(database.Query(text, bound...)) }
	step("ask", func() (any, error) { return rows(given["question"]) })
	step("again", func() (any, error) { return rows(given["question"]) })
	step("public", func() (any, error) { return rows(given["public"]) })
	step("prepared", func() (any, error) {
		statement, err := database.Prepare(given["numbered"])
		if err != nil {
			return nil, err
		}
		defer statement.Close()
		return times(3, func() (any, error) { return readSQL(statement.Query("DE")) })
	})
	step("refused", func() (any, error) { return rows(given["refused"]) })
	step("cancel", func() (any, error) {
		limited, end := briefly()
		defer end()
		return readSQL(database.QueryContext(limited, given["slow"]))
	})
	step("after", func() (any, error) { return rows(given["question"]) })
	step("transaction", func() (any, error) {
		inside, err := database.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return nil, err
		}
		defer inside.Rollback()
		return readSQL(inside.Query(given["question"]))
	})
}

func main() {
	for _, word := range os.Args[1:] {
		name, value, _ := strings.Cut(word, "=")
		given[name] = value
	}
	switch given["driver"] {
	case "pgx":
		askWithPgx()
	case "pgx of database/sql":
		stdlib.GetDefaultDriver()
		askWithSQL("pgx")
	default:
		askWithSQL("postgres")
	}
}
