# R: RPostgreSQL, and dbplyr above it.
suppressPackageStartupMessages({
  library(DBI)
  library(RPostgreSQL)
  library(dplyr)
  library(jsonlite)
})

given <- list()
for (word in commandArgs(trailingOnly = TRUE)) {
  at <- regexpr("=", word, fixed = TRUE)
  given[[substr(word, 1, at - 1)]] <- substring(word, at + 1)
}

say <- function(step, told) cat(toJSON(c(list(step = step), told), auto_unbox = TRUE, digits = NA), "\n", sep = "")

step <- function(name, run) {
  said <- NULL
  told <- tryCatch(
    withCallingHandlers(list(value = run()), warning = function(w) {
      said <<- c(said, conditionMessage(w))
      invokeRestart("muffleWarning")
    }),
    error = function(e) list(message = conditionMessage(e))
  )
  if (is.null(told$value) && is.null(told$message)) told <- list(message = paste(said, collapse = "; "))
  if (!is.null(told$message)) told$message <- paste(c(told$message, said), collapse = "; ")
  say(name, told)
}

rows <- function(sql, ...) {
  found <- dbGetQuery(connection, sql, ...)
  if (is.null(found)) return(NULL)
  lapply(seq_len(nrow(found)), function(at) unname(as.list(found[at, , drop = FALSE])))
}

say("version", list(value = as.character(packageVersion("RPostgreSQL"))))
step("connect", function() {
  connection <<- dbConnect(PostgreSQL(), host = given$host, port = as.integer(given$port), user = given$user,
    password = given$password, dbname = given$database)
  "connected"
})
step("introspect", function() list(tables = dbListTables(connection), columns = dbListFields(connection, "reads")))
step("ask", function() rows(given$question))
step("again", function() rows(given$question))
step("public", function() rows(given$public))
step("prepared", function() lapply(1:3, function(at) rows(given$numbered, "DE")))
step("refused", function() dbSendQuery(connection, given$refused))
step("after", function() rows(given$question))
step("exists", function() dbExistsTable(connection, "countries"))
step("read table", function() nrow(dbReadTable(connection, "countries")))
step("fetch", function() {
  result <- dbSendQuery(connection, given$question)
  first <- fetch(result, n = 2)
  rest <- fetch(result, n = -1)
  dbClearResult(result)
  nrow(first) + nrow(rest)
})
step("transaction", function() { dbBegin(connection); found <- rows(given$question); dbCommit(connection); found })
step("dbplyr: filter and arrange", function() {
  tbl(connection, "countries") %>% filter(continent == "Europe") %>% arrange(country) %>% pull(country)
})
step("dbplyr: summarise", function() {
  tbl(connection, "countries") %>% group_by(continent) %>% summarise(n = n()) %>% collect() %>% nrow()
})
step("dbplyr: head", function() tbl(connection, "countries") %>% head(2) %>% collect() %>% nrow())
step("dbplyr: a private query", function() {
  dbGetQuery(connection, "SET dpsql.implicit TO on")
  tbl(connection, "reads") %>% group_by(article) %>% summarise(n = n_distinct(user_id)) %>%
    arrange(desc(n)) %>% head(3) %>% collect() %>% nrow()
})
invisible(dbDisconnect(connection))
