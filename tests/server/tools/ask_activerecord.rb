# ActiveRecord: its reading of tables, raw queries, and models of tables that it did not make.
require "active_record"
require "json"

GIVEN = ARGV.to_h { |word| word.split("=", 2) }
ADDRESS = {
  adapter: "postgresql", host: GIVEN["host"], port: GIVEN["port"].to_i, username: GIVEN["user"],
  password: GIVEN["password"], database: GIVEN["database"]
}.freeze

class Country < ActiveRecord::Base
  self.table_name = "countries"
  self.primary_key = "country"
end

class Standard < ActiveRecord::Base
  self.abstract_class = true
end

class Read < Standard
  self.table_name = "reads"
  self.primary_key = "user_id"
end

def say(step, told)
  puts JSON.generate({ step: step, **told })
  $stdout.flush
end

def step(name)
  say(name, { value: yield })
rescue StandardError => e
  causes = [e]
  causes << causes.last.cause while causes.last.cause
  result = causes.filter_map { |one| one.respond_to?(:result) ? one.result : nil }.first
  say(name, { state: result&.error_field(PG::Result::PG_DIAG_SQLSTATE), message: causes.map(&:message).join("; ") })
end

def connection = ActiveRecord::Base.connection

def rows(sql) = connection.select_rows(sql)

def prepared
  bind = ActiveRecord::Relation::QueryAttribute.new("place", "DE", ActiveRecord::Type::String.new)
  Array.new(3) { connection.exec_query(GIVEN["numbered"], "place", [bind], prepare: true).rows }
end

def cancel
  raw = connection.raw_connection
  timer = Thread.new do
    sleep 0.3
    raw.cancel
  end
  rows(GIVEN["slow"])
ensure
  timer.join
end

say("version", { value: ActiveRecord.version.to_s })
step("connect") do
  ActiveRecord::Base.establish_connection(ADDRESS)
  connection.active?
end
step("introspect") { { tables: connection.tables, columns: connection.columns("reads").map(&:name) } }
step("ask") { rows(GIVEN["question"]) }
step("again") { rows(GIVEN["question"]) }
step("public") { rows(GIVEN["public"]) }
step("prepared") { prepared }
step("refused") { rows(GIVEN["refused"]) }
step("cancel") { cancel }
step("after") { rows(GIVEN["question"]) }
step("transaction") { Country.transaction { rows(GIVEN["question"]) } }
Standard.establish_connection(ADDRESS.merge(variables: { "dpsql.implicit" => "on" }))
step("models: a private query") do
  Read.group(:article).order(Arel.sql("COUNT(DISTINCT user_id) DESC")).limit(3).distinct.count(:user_id).to_a
end
step("models: order, limit and offset") { Country.order(:country).limit(2).offset(1).pluck(:country) }
step("models: find") { Country.find("DE").continent }
step("models: find_by") { Country.find_by(continent: "Oceania").country }
step("models: where in") { Country.where(country: %w[DE TV]).order(:country).pluck(:country) }
step("models: matches") { Country.where(Country.arel_table[:continent].matches("%oce%")).pluck(:country) }
step("models: count") { Country.count }
step("models: exists") { Country.exists?(country: "DE") }
step("models: group") { Country.group(:continent).count }
step("models: batches") { Country.find_each(batch_size: 2).map(&:country) }
step("schema dump") do
  require "stringio"
  text = StringIO.new
  ActiveRecord::SchemaDumper.dump(connection, text)
  text.string.include?('create_table "reads"')
end
