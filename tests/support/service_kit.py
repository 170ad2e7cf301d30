"""Statements that tests run through a service or a gateway, as every surface does."""

from __future__ import annotations

from dpsql.answer import Answer
from dpsql.plan import Prepared
from dpsql.server.gateway import Gateway, Service
from dpsql.server.users import User

__all__ = ["ask", "ask_gateway", "prepare"]


def ask(service: Service, analyst: str, text: str) -> Answer:
    return service.answer(analyst, lambda session, stop: session.sql(text, stop=stop))


def ask_gateway(gateway: Gateway, surface: str, user: User, *, text: str, role: str | None = None) -> Answer:
    return gateway.ask(surface, user, act=lambda session, stop: session.sql(text, stop=stop), role=role)


def prepare(gateway: Gateway, surface: str, user: User, *, text: str) -> Prepared:
    return gateway.describe(surface, user, act=lambda session: session.prepare(text), role=user.name)
