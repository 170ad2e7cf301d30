"""Evidence in names: columns that look like the id of a person or a direct identifier, and tables that list people.

Only names are used. They suggest; the curator decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NO_IDS = frozenset(["BOOLEAN", "DATE", "TIMESTAMP"])  # they could name units; a column named so is a flag or a date
# Whom the rows are usually about.
_PEOPLE = frozenset(
    """
    account citizen client consumer contributor customer editor employee guest individual learner listener
    member participant passenger patient person player pupil reader resident respondent shopper student
    subscriber user viewer visitor voter worker
    """.split()
)
_SHORT = {"cust": "customer", "emp": "employee", "mrn": "patient", "people": "person", "uid": "user", "usr": "user"}
_NOTES = {
    "account": "; one person may have several",
    "client": "; see that a client is one person",
    "visitor": "; one person may be several",
}
# A person in the row, perhaps besides the one it is about.
_ROLES = frozenset(
    """
    applicant approver assignee author beneficiary borrower buyer cardholder caregiver clinician contact courier
    creator doctor donor driver follower friend holder investigator landlord lender manager mentor nurse operator
    owner payee payer physician policyholder provider receiver recipient referrer reporter requester reviewer rider
    seller sender staff supervisor teacher technician tutor
    """.split()
)
# What comes near a person and is none.
_NEAR = {
    "anonymous": "it may change from visit to visit",
    "browser": "a browser is not a person",
    "cookie": "a cookie is not a person",
    "device": "a device is not a person",
    "email": "one person may have several addresses",
    "fingerprint": "a browser is not a person",
    "household": "a household is several people, protected together",
    "imei": "a device is not a person",
    "login": "one person may have several",
    "phone": "one person may have several",
    "session": "a session is not a person: one person has many",
    "ssn": "better to hash or replace it first",
    "username": "one person may have several",
}
_NEAR_UNITS = frozenset("anonymous browser cookie device fingerprint household imei session".split())  # units, if no
# person is named
_KNOWN = _PEOPLE | _ROLES | _NEAR.keys()
_KEY_WORDS = frozenset("id ids uuid guid key no nr num number hash code pk sk fk ref".split())
_NEUTRAL = frozenset(
    "anon anonymous app crm encrypted end external global hashed internal masked pseudo site source unique web".split()
)
_FLAGS = frozenset("is has was can n num number total count avg max min sum active new".split())
_ACTS = frozenset("created updated modified approved assigned deleted changed entered".split())
_AROUND_TABLES = frozenset(
    "dim fact tbl stg raw src v vw view the master data info detail details list profile profiles table".split()
)
_IDENTIFIERS = {
    "an e-mail address": "email mail e_mail",
    "a name": "name firstname lastname surname fullname forename nickname username login",
    "a phone number": "phone telephone tel mobile fax msisdn",
    "an address": "address addr street postcode zip zipcode postal latitude longitude lat lon lng geo",
    "an internet address": "ip ipv4 ipv6 mac useragent",
    "an official number": "ssn passport iban nino nhs licence license",
    "a date of birth": "birth birthday birthdate dob born",
    "free text": "comment comments note notes text message body description remark remarks review feedback query",
}
_LOOKS = {word: what for what, words in _IDENTIFIERS.items() for word in words.split()}
_THINGS = frozenset("product item file event page table column city country region category brand company".split())
_CUTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")


@dataclass(frozen=True, slots=True)
class Naming:
    """Person that a column seems to name: the one its row is about, another one, or (neither) none.

    One `is_near` if it names what could be protected where no person is named, such as a device.
    """

    is_person: bool
    is_role: bool
    reason: str
    is_near: bool = False


def judge_name(column: str) -> Naming | None:
    """Return what the column's name says of whom its values name, or None.

    >>> judge_name("customerId").reason
    'named like the id of a customer'
    >>> judge_name("user_agent"), judge_name("order_id"), judge_name("is_member")
    (None, None, None)
    """
    words = _words(column)
    *before, last = _without_keys([part for word in words for part in _unglued(word)]) or [""]
    if words and words[0] in _FLAGS:
        return None
    if last == "by" and before and before[-1] in _ACTS:
        return Naming(is_person=False, is_role=True, reason="named like the person who edited the row")
    kind = _kind(last)
    if kind not in _KNOWN and len(before) + 1 < len(words):  # a plural without a key word counts people
        kind = _kind(_singular(last))
    if kind in _NEAR:
        is_near = kind in _NEAR_UNITS
        return Naming(is_person=False, is_role=False, reason=f'named "{kind}": {_NEAR[kind]}', is_near=is_near)
    if kind not in _PEOPLE | _ROLES:
        return None
    beside = kind in _ROLES or any(_kind(word) not in _NEUTRAL | _PEOPLE for word in before)
    whose = f" ({' '.join(before)})" if beside and before else ""
    reason = f"named like the id of {_a(kind)}{whose}{_NOTES.get(kind, '')}"
    return Naming(is_person=not beside, is_role=beside, reason=reason)


def somebody_in(column: str, type_: str | None) -> Naming | None:
    """Return what `judge_name` says if it is about a person and the type, where it is known, is no flag and no date."""
    naming = None if type_ in NO_IDS else judge_name(column)
    return naming if naming is not None and (naming.is_person or naming.is_role) else None


def find_identifier(column: str) -> str | None:
    """Return the kind of direct identifier that the column seems to hold, or None.

    >>> find_identifier("home_address"), find_identifier("product_name"), find_identifier("page")
    ('an address', None, None)
    """
    words = _words(column)
    if not words or _THINGS & set(words):
        return None
    return _LOOKS.get("".join(words)) or next((_LOOKS[word] for word in reversed(words) if word in _LOOKS), None)


def find_people(table: str) -> str | None:
    """Return the word for the people that the table seems to list, one in a row, or None.

    >>> find_people("dim_customers"), find_people("People"), find_people("user_events")
    ('customer', 'person', None)
    """
    words = [_kind(_singular(word)) for word in _words(table) if word not in _AROUND_TABLES]
    return words[-1] if words and words[-1] in _PEOPLE | _ROLES else None


def _words(name: str) -> list[str]:
    """Return the words of a name in lower case, without digits that stand alone or at the end."""
    parts = (part.lower().rstrip("0123456789") for part in _CUTS.split(name))
    return [part for part in parts if part]


def _unglued(word: str) -> list[str]:
    """Return `userid` as two words."""
    for key in ("uuid", "guid", "id", "key", "hash", "no", "nr"):
        stem = word.removesuffix(key)
        if stem != word and _kind(stem) in _KNOWN:
            return [stem, key]
    return [word]


def _without_keys(words: list[str]) -> list[str]:
    while len(words) > 1 and words[-1] in _KEY_WORDS:
        words = words[:-1]
    while len(words) > 1 and words[0] in {"id", "fk", "sk", "pk"}:
        words = words[1:]
    return words


def _kind(word: str) -> str:
    return _SHORT.get(word, word)


def _singular(word: str) -> str:
    return word if word in _SHORT else word.removesuffix("s")


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeio' else 'a'} {word}"
