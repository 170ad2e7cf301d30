"""MariaDB and MySQL as an engine, through PyMySQL."""
