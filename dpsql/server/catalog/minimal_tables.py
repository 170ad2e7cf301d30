"""The system relations of the small catalog: their columns, and the few of them that have rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from dpsql.server.catalog.ddl import HOME, list_tables
from dpsql.sql.ir.catalog import Catalog as Tables

__all__ = ["DATABASE", "RELATIONS", "TYPES", "Rows", "TypeRow", "read_rows", "type_named"]

DATABASE = "dpsql"
_OWNER = 10
_SYSTEM, _HOME, _STANDARD = 11, 2200, 13_000
_FIRST = 16_384
_LETTERS = {"b": 16, "c": 18, "n": 19, "8": 20, "2": 21, "4": 23, "o": 26}
# name: columns, each with the letter of its type, or none if it is text or shown as text
_SPEC = """
    pg_namespace: oid:o nspname:n nspowner:o nspacl
    pg_class: oid:o relname:n relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o
        reltablespace:o relpages:4 reltuples relallvisible:4 relallfrozen:4 reltoastrelid:o relhasindex:b
        relisshared:b relpersistence:c relkind:c relnatts:2 relchecks:2 relhasrules:b relhastriggers:b
        relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b relreplident:c relispartition:b
        relrewrite:o relfrozenxid relminmxid relacl reloptions relpartbound
    pg_attribute: attrelid:o attname:n atttypid:o attlen:2 attnum:2 atttypmod:4 attndims:2 attbyval:b attalign:c
        attstorage:c attcompression:c attnotnull:b atthasdef:b atthasmissing:b attidentity:c attgenerated:c
        attisdropped:b attislocal:b attinhcount:2 attcollation:o attstattarget:2 attacl attoptions attfdwoptions
        attmissingval
    pg_type: oid:o typname:n typnamespace:o typowner:o typlen:2 typbyval:b typtype:c typcategory:c
        typispreferred:b typisdefined:b typdelim:c typrelid:o typsubscript typelem:o typarray:o typinput typoutput
        typreceive typsend typmodin typmodout typanalyze typalign:c typstorage:c typnotnull:b typbasetype:o
        typtypmod:4 typndims:4 typcollation:o typdefaultbin typdefault typacl
    pg_description: objoid:o classoid:o objsubid:4 description
    pg_constraint: oid:o conname:n connamespace:o contype:c condeferrable:b condeferred:b conenforced:b
        convalidated:b conrelid:o contypid:o conindid:o conparentid:o confrelid:o confupdtype:c confdeltype:c
        confmatchtype:c conislocal:b coninhcount:2 connoinherit:b conperiod:b conkey confkey conpfeqop conppeqop
        conffeqop confdelsetcols conexclop conbin
    pg_index: indexrelid:o indrelid:o indnatts:2 indnkeyatts:2 indisunique:b indnullsnotdistinct:b indisprimary:b
        indisexclusion:b indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b
        indisreplident:b indkey indcollation indclass indoption indexprs indpred
    pg_attrdef: oid:o adrelid:o adnum:2 adbin
    pg_am: oid:o amname:n amhandler amtype:c
    pg_roles: rolname:n rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b rolreplication:b
        rolconnlimit:4 rolpassword rolvaliduntil rolbypassrls:b rolconfig oid:o
    pg_proc: oid:o proname:n pronamespace:o proowner:o prolang:o procost prorows provariadic:o prosupport
        prokind:c prosecdef:b proleakproof:b proisstrict:b proretset:b provolatile:c proparallel:c pronargs:2
        pronargdefaults:2 prorettype:o proargtypes proallargtypes proargmodes proargnames proargdefaults
        protrftypes prosrc probin prosqlbody proconfig proacl
    pg_collation: oid:o collname:n collnamespace:o collowner:o collprovider:c collisdeterministic:b collencoding:4
        collcollate collctype colllocale collicurules collversion
    pg_database: oid:o datname:n datdba:o encoding:4 datlocprovider:c datistemplate:b datallowconn:b
        dathasloginevt:b datconnlimit:4 datfrozenxid datminmxid dattablespace:o datcollate datctype datlocale
        daticurules datcollversion datacl
    pg_enum: oid:o enumtypid:o enumsortorder enumlabel:n
    pg_sequence: seqrelid:o seqtypid:o seqstart:8 seqincrement:8 seqmax:8 seqmin:8 seqcache:8 seqcycle:b
    pg_inherits: inhrelid:o inhparent:o inhseqno:4 inhdetachpending:b
    pg_auth_members: oid:o roleid:o member:o grantor:o admin_option:b inherit_option:b set_option:b
    pg_language: oid:o lanname:n lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o laninline:o lanvalidator:o
        lanacl
    pg_extension: oid:o extname:n extowner:o extnamespace:o extrelocatable:b extversion extconfig extcondition
    pg_range: rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical rngsubdiff
    pg_tablespace: oid:o spcname:n spcowner:o spcacl spcoptions
    pg_settings: name setting unit category short_desc extra_desc context vartype source min_val max_val enumvals
        boot_val reset_val sourcefile sourceline:4 pending_restart:b
    pg_depend: classid:o objid:o objsubid:4 refclassid:o refobjid:o refobjsubid:4 deptype:c
    pg_trigger: oid:o tgrelid:o tgparentid:o tgname:n tgfoid:o tgtype:2 tgenabled:c tgisinternal:b tgconstrrelid:o
        tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:2 tgattr tgargs tgqual tgoldtable:n
        tgnewtable:n
    pg_tables: schemaname:n tablename:n tableowner:n tablespace:n hasindexes:b hasrules:b hastriggers:b
        rowsecurity:b
    pg_views: schemaname:n viewname:n viewowner:n definition
    pg_matviews: schemaname:n matviewname:n matviewowner:n tablespace:n hasindexes:b ispopulated:b definition
    pg_user: usename:n usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd valuntil useconfig
    pg_stat_user_tables: relid:o schemaname:n relname:n seq_scan:8 last_seq_scan seq_tup_read:8 idx_scan:8
        last_idx_scan idx_tup_fetch:8 n_tup_ins:8 n_tup_upd:8 n_tup_del:8 n_tup_hot_upd:8 n_tup_newpage_upd:8
        n_live_tup:8 n_dead_tup:8 n_mod_since_analyze:8 n_ins_since_vacuum:8 last_vacuum last_autovacuum
        last_analyze last_autoanalyze vacuum_count:8 autovacuum_count:8 analyze_count:8 autoanalyze_count:8
        total_vacuum_time total_autovacuum_time total_analyze_time total_autoanalyze_time
    pg_shdescription: objoid:o classoid:o description
    pg_policy: oid:o polname:n polrelid:o polcmd:c polpermissive:b polroles polqual polwithcheck
    information_schema.columns: table_catalog:n table_schema:n table_name:n column_name:n ordinal_position:4
        column_default is_nullable data_type character_maximum_length:4 character_octet_length:4
        numeric_precision:4 numeric_precision_radix:4 numeric_scale:4 datetime_precision:4 interval_type
        interval_precision:4 character_set_catalog:n character_set_schema:n character_set_name:n
        collation_catalog:n collation_schema:n collation_name:n domain_catalog:n domain_schema:n domain_name:n
        udt_catalog:n udt_schema:n udt_name:n scope_catalog:n scope_schema:n scope_name:n maximum_cardinality:4
        dtd_identifier:n is_self_referencing is_identity identity_generation identity_start identity_increment
        identity_maximum identity_minimum identity_cycle is_generated generation_expression is_updatable
    information_schema.tables: table_catalog:n table_schema:n table_name:n table_type
        self_referencing_column_name:n reference_generation user_defined_type_catalog:n user_defined_type_schema:n
        user_defined_type_name:n is_insertable_into is_typed commit_action
    information_schema.schemata: catalog_name:n schema_name:n schema_owner:n default_character_set_catalog:n
        default_character_set_schema:n default_character_set_name:n sql_path
    information_schema.key_column_usage: constraint_catalog:n constraint_schema:n constraint_name:n
        table_catalog:n table_schema:n table_name:n column_name:n ordinal_position:4
        position_in_unique_constraint:4
    information_schema.table_constraints: constraint_catalog:n constraint_schema:n constraint_name:n
        table_catalog:n table_schema:n table_name:n constraint_type is_deferrable initially_deferred enforced
        nulls_distinct
    information_schema.referential_constraints: constraint_catalog:n constraint_schema:n constraint_name:n
        unique_constraint_catalog:n unique_constraint_schema:n unique_constraint_name:n match_option update_rule
        delete_rule
    information_schema.views: table_catalog:n table_schema:n table_name:n view_definition check_option
        is_updatable is_insertable_into is_trigger_updatable is_trigger_deletable is_trigger_insertable_into
    information_schema.character_sets: character_set_catalog:n character_set_schema:n character_set_name:n
        character_repertoire:n form_of_use:n default_collate_catalog:n default_collate_schema:n
        default_collate_name:n
    pg_statistic_ext: oid:o stxrelid:o stxname:n stxnamespace:o stxowner:o stxkeys stxstattarget:2 stxkind
        stxexprs
    pg_publication: oid:o pubname:n pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b
        pubviaroot:b pubgencols:c
    pg_publication_rel: oid:o prpubid:o prrelid:o prqual prattrs
    pg_publication_namespace: oid:o pnpubid:o pnnspid:o
    pg_rewrite: oid:o rulename:n ev_class:o ev_type:c ev_enabled:c is_instead:b ev_qual ev_action
    pg_foreign_table: ftrelid:o ftserver:o ftoptions
    pg_foreign_server: oid:o srvname:n srvowner:o srvfdw:o srvtype srvversion srvacl srvoptions
    pg_partitioned_table: partrelid:o partstrat:c partnatts:2 partdefid:o partattrs partclass partcollation
        partexprs
    pg_get_keywords: word catcode:c catdesc barelabel:b baredesc
    pg_opclass: oid:o opcmethod:o opcname:n opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b opckeytype:o
    pg_default_acl: oid:o defaclrole:o defaclnamespace:o defaclobjtype:c defaclacl
    pg_foreign_data_wrapper: oid:o fdwname:n fdwowner:o fdwhandler:o fdwvalidator:o fdwacl fdwoptions
"""
# OID, name, length, category, OID of the array type
_TYPE_SPEC = """
16 bool 1 B 1000/17 bytea -1 U 1001/18 char 1 Z 1002/19 name 64 S 1003/20 int8 8 N 1016/21 int2 2 N 1005
22 int2vector -1 A 1006/23 int4 4 N 1007/24 regproc 4 N 1008/25 text -1 S 1009/26 oid 4 N 1028/27 tid 6 U 1010
28 xid 4 U 1011/29 cid 4 U 1012/30 oidvector -1 A 1013/114 json -1 U 199/142 xml -1 U 143/700 float4 4 N 1021
701 float8 8 N 1022/705 unknown -2 X 0/869 inet -1 I 1041/1042 bpchar -1 S 1014/1043 varchar -1 S 1015
1082 date 4 D 1182/1083 time 8 D 1183/1114 timestamp 8 D 1115/1184 timestamptz 8 D 1185/1186 interval 16 T 1187
1266 timetz 12 D 1270
1700 numeric -1 N 1231/2205 regclass 4 N 2210/2206 regtype 4 N 2211/2249 record -1 P 2287/2278 void 4 P 0
2950 uuid 16 U 2951/3802 jsonb -1 U 3807
"""
_SPOKEN = {
    "boolean": "bool",
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "character varying": "varchar",
    "char": "bpchar",
    "character": "bpchar",
    '"char"': "char",
}
Rows = dict[str, list[dict[str, object]]]


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A type: its OID and name, its size in bytes (negative: it varies), its category, and its array type or 0."""

    oid: int
    name: str
    size: int
    category: str
    array: int


def _relations() -> dict[str, dict[str, int]]:
    found = {}
    for line in _SPEC.replace("\n        ", " ").strip().splitlines():
        name, _, columns = line.strip().partition(": ")
        parted = [column.partition(":") for column in columns.split()]
        found[name] = {column: _LETTERS.get(letter, 25) for column, _, letter in parted}
    return found


def _types() -> dict[int, TypeRow]:
    words = [line.split() for line in _TYPE_SPEC.strip().replace("\n", "/").split("/")]
    return {int(oid): TypeRow(int(oid), name, int(size), kind, int(array)) for oid, name, size, kind, array in words}


RELATIONS = _relations()
TYPES = _types()
_NAMED = {each.name: each for each in TYPES.values()}


def type_named(name: str) -> TypeRow | None:
    """Return the type with this name in SQL, without the modifiers in parentheses.

    >>> type_named("numeric(9,2)").oid, type_named("double precision").oid
    (1700, 701)
    """
    bare = name.partition("(")[0].strip().lower()
    return _NAMED.get(_SPOKEN.get(bare, bare))


def read_rows(tables: Tables) -> Rows:
    """Return the rows of the relations that have any."""
    paths = list_tables(tables)
    schemas = {HOME: _HOME} | {name: at for at, name in enumerate(sorted({path[0] for path in paths} - {HOME}), _FIRST)}
    rows: Rows = {
        "pg_namespace": [
            {"oid": oid, "nspname": name, "nspowner": _OWNER}
            for name, oid in ({"pg_catalog": _SYSTEM, "information_schema": _STANDARD} | schemas).items()
        ],
        "information_schema.schemata": [
            {"catalog_name": DATABASE, "schema_name": name, "schema_owner": DATABASE}
            for name in ("information_schema", "pg_catalog", *schemas)
        ],
        "pg_database": [{"oid": 5, "datname": DATABASE, "datdba": _OWNER, "encoding": 6, "datistemplate": 0}],
        "pg_am": [{"oid": 2, "amname": "heap", "amtype": "t"}],
        "pg_tablespace": [{"oid": 1663, "spcname": "pg_default", "spcowner": _OWNER}],
        "pg_language": [{"oid": 14, "lanname": "sql", "lanowner": _OWNER}],
        "pg_type": list(_type_rows()),
    }
    rows["pg_database"][0] |= {"datallowconn": 1, "datconnlimit": -1, "dattablespace": 1663, "datcollate": "C"}
    for oid, (path, columns) in zip(count(_FIRST + 1000), paths.items(), strict=False):
        for name, each in _table_rows(oid, path, schema=schemas[path[0]], columns=columns):
            rows.setdefault(name, []).append(each)
    return rows


def _type_rows() -> Iterator[dict[str, object]]:
    same = {"typnamespace": _SYSTEM, "typowner": _OWNER, "typisdefined": 1, "typdelim": ",", "typtypmod": -1}
    for each in TYPES.values():
        kind = "p" if each.category in "PX" else "b"
        own = {"oid": each.oid, "typname": each.name, "typlen": each.size, "typcategory": each.category}
        own["typbyval"] = int(each.size in {1, 2, 4, 8})
        yield same | own | {"typtype": kind, "typarray": each.array, "typinput": f"{each.name}in"}
        if each.array:
            own = {"oid": each.array, "typname": f"_{each.name}", "typlen": -1, "typcategory": "A"}
            yield same | own | {"typtype": "b", "typelem": each.oid, "typinput": "array_in"}


def _table_rows(
    oid: int, path: tuple[str, str], *, schema: int, columns: dict[str, str]
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the rows that one table has in the relations, each with the relation's name."""
    kind = {"relkind": "r", "relpersistence": "p", "relam": 2, "reltuples": -1, "relreplident": "d"}
    yield "pg_class", kind | {"oid": oid, "relname": path[1], "relnamespace": schema, "relowner": _OWNER}
    yield "pg_tables", {"schemaname": path[0], "tablename": path[1], "tableowner": DATABASE}
    place: dict[str, object] = {"table_catalog": DATABASE, "table_schema": path[0], "table_name": path[1]}
    yield "information_schema.tables", place | {"table_type": "BASE TABLE", "is_insertable_into": "YES"}
    for at, (name, type_) in enumerate(columns.items(), 1):
        known = type_named(type_) or TYPES[25]
        own = {"attrelid": oid, "attname": name, "attnum": at, "atttypid": known.oid, "attlen": known.size}
        blank = {"attidentity": "", "attgenerated": "", "attislocal": 1, "atttypmod": _modifier(type_)}
        yield "pg_attribute", own | blank
        told = {"column_name": name, "ordinal_position": at, "data_type": type_.partition("(")[0], "is_nullable": "YES"}
        told |= {"udt_catalog": DATABASE, "udt_schema": "pg_catalog", "udt_name": known.name, "is_identity": "NO"}
        yield "information_schema.columns", told | place | {"is_generated": "NEVER", "is_updatable": "YES"}


def _modifier(type_: str) -> int:
    """Return what pg_attribute says of numeric(9,2), and -1 for what has no such numbers."""
    _, _, numbers = type_.partition("(")
    if not numbers:
        return -1
    width, scale = map(int, numbers.rstrip(")").split(","))
    return (width << 16 | scale) + 4
