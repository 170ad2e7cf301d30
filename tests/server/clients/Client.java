import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.postgresql.util.PSQLException;

/** pgjdbc as a Java program uses it; prints a line of JSON for each step: its name, and its value or its error. */
public final class Client {
    private static final Map<String, String> GIVEN = new HashMap<>();

    interface Step {
        Object run() throws Exception;
    }

    public static void main(String[] words) throws Exception {
        for (String word : words) {
            GIVEN.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
        }
        for (String setting : GIVEN.get("modes").split(" ")) {
            try (Connection connection = connect(setting)) {
                asked(setting, connection);
            }
        }
        try (Connection connection = connect("preferQueryMode=extended")) {
            described(connection);
            parameters(connection);
            cursor(connection);
            refused(connection);
            ended(connection);
        }
        step("wrong password", () -> {
            Properties other = properties();
            other.setProperty("password", "wrong");
            return DriverManager.getConnection(url(), other);
        });
    }

    private static String url() {
        return "jdbc:postgresql://" + GIVEN.get("host") + ":" + GIVEN.get("port") + "/" + GIVEN.get("database");
    }

    private static Properties properties() {
        Properties properties = new Properties();
        properties.setProperty("user", GIVEN.get("user"));
        properties.setProperty("password", GIVEN.get("password"));
        properties.setProperty("sslmode", GIVEN.containsKey("root") ? "verify-full" : "disable");
        properties.setProperty("sslrootcert", GIVEN.getOrDefault("root", ""));
        return properties;
    }

    private static Connection connect(String setting) throws SQLException {
        Properties properties = properties();
        for (String one : setting.split(",")) {
            properties.setProperty(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
        }
        return DriverManager.getConnection(url(), properties);
    }

    /** The same question in every way to ask it, and wrapped. */
    private static void asked(String setting, Connection connection) {
        step(setting + " statement", () -> rows(connection.createStatement().executeQuery(GIVEN.get("question"))));
        step(setting + " prepared", () -> {
            List<Object> answers = new ArrayList<>();
            try (PreparedStatement asking = connection.prepareStatement(GIVEN.get("question"))) {
                for (int time = 0; time < 7; time++) { // the driver names the statement when it has run five times
                    answers.add(rows(asking.executeQuery()));
                }
            }
            return answers;
        });
        step(setting + " wrapped", () -> rows(connection.createStatement().executeQuery(GIVEN.get("wrapped"))));
        step(setting + " most rows", () -> {
            Statement asking = connection.createStatement();
            asking.setMaxRows(2);
            return rows(asking.executeQuery(GIVEN.get("question")));
        });
        step(setting + " parameter", () -> {
            PreparedStatement asking = connection.prepareStatement(GIVEN.get("parameter"));
            asking.setString(1, "DE");
            return rows(asking.executeQuery());
        });
    }

    /** What a tool asks before anybody asks anything. */
    private static void described(Connection connection) throws SQLException {
        DatabaseMetaData about = connection.getMetaData();
        String table = GIVEN.get("table");
        step("product", () -> about.getDatabaseProductName() + ", " + about.getUserName());
        step("version", () -> about.getDatabaseMajorVersion() >= 9);
        step("tables", () -> column(about.getTables(null, null, "%", new String[] {"TABLE", "VIEW"}), "TABLE_NAME"));
        step("columns", () -> column(about.getColumns(null, null, table, "%"), "COLUMN_NAME"));
        step("column types", () -> column(about.getColumns(null, null, table, "%"), "TYPE_NAME"));
        step("primary keys", () -> column(about.getPrimaryKeys(null, null, table), "COLUMN_NAME"));
        step("imported keys", () -> column(about.getImportedKeys(null, null, table), "FKCOLUMN_NAME"));
        step("exported keys", () -> column(about.getExportedKeys(null, null, table), "FKCOLUMN_NAME"));
        step("indices", () -> column(about.getIndexInfo(null, null, table, false, true), "INDEX_NAME"));
        step("best row", () -> column(about.getBestRowIdentifier(null, null, table, 0, true), "COLUMN_NAME"));
        step("schemas", () -> column(about.getSchemas(), "TABLE_SCHEM"));
        step("catalogs", () -> column(about.getCatalogs(), "TABLE_CAT").size());
        step("table types", () -> column(about.getTableTypes(), "TABLE_TYPE").contains("TABLE"));
        step("types", () -> column(about.getTypeInfo(), "TYPE_NAME").containsAll(List.of("int8", "text", "numeric")));
        step("functions", () -> column(about.getFunctions(null, null, "no_such%"), "FUNCTION_NAME"));
        step("procedures", () -> column(about.getProcedures(null, null, "no_such%"), "PROCEDURE_NAME"));
        step("privileges", () -> column(about.getTablePrivileges(null, null, table), "PRIVILEGE") != null);
        step("client info", () -> column(about.getClientInfoProperties(), "NAME").contains("ApplicationName"));
        step("keywords", () -> !about.getSQLKeywords().isEmpty());
        step("name length", () -> about.getMaxColumnNameLength());
        step("valid", () -> connection.isValid(5));
        step("schema", () -> connection.getSchema());
        step("question described", () -> {
            PreparedStatement asking = connection.prepareStatement(GIVEN.get("described"));
            ResultSetMetaData shape = asking.getMetaData();
            List<Object> columns = new ArrayList<>();
            for (int at = 1; at <= shape.getColumnCount(); at++) {
                columns.add(shape.getColumnName(at) + " " + shape.getColumnTypeName(at));
            }
            return columns;
        });
        step("parameters described", () -> {
            PreparedStatement asking = connection.prepareStatement(GIVEN.get("parameter"));
            return asking.getParameterMetaData().getParameterTypeName(1);
        });
    }

    /** One parameter of each type that the language binds. */
    private static void parameters(Connection connection) {
        bound(connection, "text", asking -> asking.setString(1, "it's \u00fcber; ? -- $1"));
        bound(connection, "smallint", asking -> asking.setShort(1, (short) -7));
        bound(connection, "integer", asking -> asking.setInt(1, 2_000_000_000));
        bound(connection, "bigint", asking -> asking.setLong(1, -9_000_000_000_000_000_000L));
        bound(connection, "double precision", asking -> asking.setDouble(1, 0.1));
        bound(connection, "float8", asking -> asking.setFloat(1, 1.5f));
        bound(connection, "boolean", asking -> asking.setBoolean(1, true));
        bound(connection, "date", asking -> asking.setDate(1, java.sql.Date.valueOf("2026-02-03")));
        bound(connection, "timestamp", asking -> asking.setTimestamp(1, java.sql.Timestamp.valueOf("2026-02-03 04:05:06.5")));
        bound(connection, "numeric", asking -> asking.setBigDecimal(1, new BigDecimal("12.50")));
        bound(connection, "varchar", asking -> asking.setNull(1, Types.VARCHAR));
        bound(connection, "int8", asking -> asking.setObject(1, 5L));
    }

    interface Binding {
        void on(PreparedStatement asking) throws SQLException;
    }

    private static void bound(Connection connection, String type, Binding binding) {
        step("bound " + type, () -> {
            try (PreparedStatement asking = connection.prepareStatement("SELECT CAST(? AS " + type + ") AS v")) {
                binding.on(asking);
                ResultSet answer = asking.executeQuery();
                answer.next();
                return answer.getString(1);
            }
        });
    }

    /** Rows fetched two by two in a transaction, which the server hands out from one suspended portal. */
    private static void cursor(Connection connection) {
        step("cursor", () -> {
            connection.setAutoCommit(false);
            try (PreparedStatement asking = connection.prepareStatement(GIVEN.get("question"))) {
                asking.setFetchSize(2);
                return rows(asking.executeQuery());
            } finally {
                connection.commit();
                connection.setAutoCommit(true);
            }
        });
        step("read only", () -> {
            connection.setReadOnly(true);
            connection.setAutoCommit(false);
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            try {
                return rows(connection.createStatement().executeQuery(GIVEN.get("question")));
            } finally {
                connection.rollback();
                connection.setAutoCommit(true);
            }
        });
    }

    private static void refused(Connection connection) {
        for (String name : new String[] {"not private", "syntax", "write", "dear"}) {
            step(name, () -> rows(connection.createStatement().executeQuery(GIVEN.get(name))));
            step(name + " prepared", () -> rows(connection.prepareStatement(GIVEN.get(name)).executeQuery()));
        }
        step("failed transaction", () -> {
            connection.setAutoCommit(false);
            try {
                step("in a transaction", () -> rows(connection.createStatement().executeQuery(GIVEN.get("syntax"))));
                return rows(connection.createStatement().executeQuery(GIVEN.get("question")));
            } finally {
                connection.rollback();
                connection.setAutoCommit(true);
            }
        });
        step("after", () -> rows(connection.createStatement().executeQuery(GIVEN.get("question"))));
    }

    /** A statement that takes long, ended by the client's wish and by its time limit. */
    private static void ended(Connection connection) {
        step("cancelled", () -> {
            Statement asking = connection.createStatement();
            Thread later = new Thread(() -> {
                try {
                    Thread.sleep(300);
                    asking.cancel();
                } catch (Exception error) {
                    say("cancel", "error", error.toString());
                }
            });
            later.start();
            try {
                return rows(asking.executeQuery(GIVEN.get("slow")));
            } finally {
                later.join();
            }
        });
        step("time limit", () -> {
            Statement asking = connection.createStatement();
            asking.setQueryTimeout(1);
            return rows(asking.executeQuery(GIVEN.get("slow other")));
        });
        step("after cancel", () -> rows(connection.createStatement().executeQuery(GIVEN.get("question"))));
    }

    private static List<Object> rows(ResultSet answer) throws SQLException {
        List<Object> all = new ArrayList<>();
        try (answer) {
            int width = answer.getMetaData().getColumnCount();
            while (answer.next()) {
                List<Object> row = new ArrayList<>();
                for (int at = 1; at <= width; at++) {
                    row.add(answer.getObject(at));
                }
                all.add(row);
            }
        }
        return all;
    }

    private static List<Object> column(ResultSet answer, String name) throws SQLException {
        List<Object> all = new ArrayList<>();
        try (answer) {
            while (answer.next()) {
                all.add(answer.getObject(name));
            }
        }
        return all;
    }

    private static void step(String name, Step step) {
        try {
            say(name, "value", step.run());
        } catch (PSQLException error) {
            String hint = error.getServerErrorMessage() == null ? null : error.getServerErrorMessage().getHint();
            System.out.println(
                    "{\"step\": " + json(name) + ", \"state\": " + json(error.getSQLState()) + ", \"message\": "
                            + json(error.getMessage()) + ", \"hint\": " + json(hint) + "}");
        } catch (Exception error) {
            say(name, "error", error.toString());
        }
    }

    private static void say(String name, String key, Object value) {
        System.out.println("{\"step\": " + json(name) + ", \"" + key + "\": " + json(value) + "}");
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof List<?> list) {
            List<String> parts = new ArrayList<>();
            list.forEach(part -> parts.add(json(part)));
            return "[" + String.join(", ", parts) + "]";
        }
        StringBuilder text = new StringBuilder("\"");
        for (char one : value.toString().toCharArray()) {
            text.append(one == '"' || one == '\\' || one < ' ' || one > '~' ? String.format("\\u%04x", (int) one) : "" + one);
        }
        return text.append('"').toString();
    }
}
