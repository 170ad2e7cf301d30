"""Planning: from a query and a budget to what the engine runs, what it may cost, and what is released."""

from dpsql.plan.identity.derived_answers import DerivedAnswer, take_first_rows
from dpsql.plan.identity.replay_key import compute_release_key
from dpsql.plan.identity.stored_release import (
    AnswerCache,
    NamesOfAccount,
    PackedRelease,
    is_of_0_11,
    is_repeatable,
    is_same_release,
    list_earlier_plans,
    pack_bytes,
    pack_release,
    unpack,
)
from dpsql.plan.outer_select import (
    MOST_PUBLIC_ROWS,
    EvaluatorParser,
    OuterSelectView,
    Prepared,
    ResultView,
    result_view,
)
from dpsql.plan.plan import Plan, build_statement
from dpsql.plan.planner import RETIRED, build_plan, refuse_retired
from dpsql.plan.release import (
    Draw,
    ExternalRelease,
    Release,
    ReleaseResult,
    ReleaseTerms,
    describe_noise,
    divide_steps,
    draw_places,
    find_place,
    name_measure,
    read_spread,
    release,
)

__all__ = [
    "MOST_PUBLIC_ROWS",
    "RETIRED",
    "AnswerCache",
    "DerivedAnswer",
    "Draw",
    "EvaluatorParser",
    "ExternalRelease",
    "NamesOfAccount",
    "OuterSelectView",
    "PackedRelease",
    "Plan",
    "Prepared",
    "Release",
    "ReleaseResult",
    "ReleaseTerms",
    "ResultView",
    "build_plan",
    "build_statement",
    "compute_release_key",
    "describe_noise",
    "divide_steps",
    "draw_places",
    "find_place",
    "is_of_0_11",
    "is_repeatable",
    "is_same_release",
    "list_earlier_plans",
    "name_measure",
    "pack_bytes",
    "pack_release",
    "read_spread",
    "refuse_retired",
    "release",
    "result_view",
    "take_first_rows",
    "unpack",
]
