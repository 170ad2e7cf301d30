"""Django: `inspectdb`, raw queries, and models that it did not make."""

from __future__ import annotations

from io import StringIO

import django
from django.conf import settings
from steps import after_a_moment, given, say, step

ADDRESS = {
    "ENGINE": "django.db.backends.postgresql",
    "HOST": given["host"],
    "PORT": given["port"],
    "USER": given["user"],
    "PASSWORD": given["password"],
    "NAME": given["database"],
}
settings.configure(
    DATABASES={
        "default": ADDRESS,
        "bound by the server": {**ADDRESS, "OPTIONS": {"server_side_binding": True}},
        "standard SQL": {**ADDRESS, "OPTIONS": {"options": "-c dpsql.implicit=on"}},
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=False,
)
django.setup()

from django.core.management import call_command  # noqa: E402 - models and commands need the settings
from django.db import connections, models, transaction  # noqa: E402
from django.db.models import Count  # noqa: E402
from django.db.models.functions import Lower, Upper  # noqa: E402


class Country(models.Model):
    country = models.TextField(primary_key=True)
    continent = models.TextField()
    millions = models.DecimalField(max_digits=9, decimal_places=2)
    large = models.BooleanField()
    since = models.DateField()

    class Meta:
        app_label = "events"
        managed = False
        db_table = "countries"

    def __str__(self) -> str:
        return self.country


class Read(models.Model):
    user_id = models.BigIntegerField(primary_key=True)
    article = models.TextField()
    country = models.TextField()
    ts = models.DateTimeField()

    class Meta:
        app_label = "events"
        managed = False
        db_table = "reads"

    def __str__(self) -> str:
        return self.article


def rows(statement: str, values: list[object] | None = None, *, alias: str = "default") -> list[list[object]]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, values)
        return [list(row) for row in cursor.fetchall()]


def introspect() -> dict[str, list[str]]:
    text = StringIO()
    call_command("inspectdb", "reads", stdout=text)
    introspection = connections["default"].introspection
    with connections["default"].cursor() as cursor:
        columns = [column.name for column in introspection.get_table_description(cursor, "reads")]
    assert all(f"{column} = models." in text.getvalue() for column in columns), text.getvalue()
    return {"tables": introspection.table_names(), "columns": columns}


def prepared() -> list[list[list[object]]]:
    return [rows(given["formatted"], ["DE"], alias="bound by the server") for _ in range(3)]


def cancel() -> object:
    after_a_moment(connections["default"].connection.cancel)
    return rows(given["slow"])


def in_transaction() -> object:
    with transaction.atomic():
        rows(given["public"])
        with transaction.atomic():
            return rows(given["question"])


countries = Country.objects.all()
say("version", {"value": django.get_version()})
step("connect", lambda: connections["default"].ensure_connection() or "connected")
step("introspect", introspect)
step("ask", lambda: rows(given["question"]))
step("again", lambda: rows(given["question"]))
step("public", lambda: rows(given["public"]))
step("prepared", prepared)
step("refused", lambda: rows(given["refused"]))
step("cancel", cancel)
step("after", lambda: rows(given["question"]))
step("transaction", in_transaction)
step(
    "ORM: a private query",
    lambda: [
        list(row)
        for row in Read.objects.using("standard SQL")
        .values_list("article")
        .annotate(n=Count("user_id", distinct=True))
        .order_by("-n")[:3]
    ],
)
step("ORM: filter, order and slice", lambda: list(countries.order_by("country").values_list("country")[:2]))
step("ORM: count", countries.count)
step("ORM: exists", countries.filter(large=True).exists)
step("ORM: get", lambda: countries.get(pk="DE").continent)
step("ORM: contains", lambda: list(countries.filter(continent__contains="Oce").values_list("country")))
step("ORM: icontains", lambda: list(countries.filter(continent__icontains="oce").values_list("country")))
step("ORM: startswith", lambda: list(countries.filter(continent__istartswith="oce").values_list("country")))
step("ORM: regex", lambda: list(countries.filter(continent__regex="^Oce").values_list("country")))
step("ORM: in", lambda: list(countries.filter(country__in=["DE", "TV"]).order_by("pk").values_list("country")))
step("ORM: year", lambda: list(countries.filter(since__year=1990).values_list("country")))
step("ORM: functions", lambda: list(countries.filter(pk="DE").values_list(Lower("country"), Upper("continent"))))
step(
    "ORM: group",
    lambda: list(countries.values_list("continent").annotate(n=Count("pk")).order_by("continent")),
)
step("ORM: iterate", lambda: [one.pk for one in countries.order_by("pk").iterator(chunk_size=2)])
