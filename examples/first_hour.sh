#!/usr/bin/env bash
# The first hour with dpsql, over a CSV file that this script makes: a policy, a question whose answer is empty and says
# why, a better question, a free repeat, and a larger budget. first_hour.txt shows what it prints.
set -euo pipefail
cd "$(mktemp -d)"

say() { printf '\n== %s\n' "$*"; }
run() {
  local word shown='$'
  for word in "$@"; do [[ $word == *[\ \^]* ]] && shown+=" \"$word\"" || shown+=" $word"; done
  printf '%s\n' "$shown"
  "$@"
}

say "1. Some data: 2,000 editors, each of up to three of 20 pages."
awk 'BEGIN { print "editor_id,page"; for (e = 1; e <= 2000; e++) for (n = 0; n <= e % 3; n++)
  printf "%d,Page %d\n", e, (e * 7919 + n * 613) % 20 }' > edits.csv

say "2. A starter policy, from the names of its columns. Read it before you use it."
run dpsql init edits.csv
run grep -A 2 -F "[tables.edits]" policy.toml

say "3. What the policy means."
run dpsql check | sed -n '1,/^$/p'

top="SELECT page, COUNT(DISTINCT editor_id) AS editors FROM edits GROUP BY page TOP 5 PRIVATE"
question="$top WITH (mechanism = limited_domain)"
say "4. What a question would cost. This reads no row."
run dpsql explain "$question" | grep -E "^\\$|^needs|^such queries"

say "5. The question, to a mechanism that charges for what comes back. Its answer is empty, and says why."
run dpsql query "$question"

bounded="$top WITH (max_groups_contributed = 3)"
say "6. A better question: count each editor in at most three pages, and leave the mechanism to dpsql."
run dpsql query "$bounded"

say "7. The same question again is free."
run dpsql query "$bounded"

say "8. A larger budget: the curator edits the policy, and grants it."
run sed -i "s/^epsilon = 1.0/epsilon = 2.0/" policy.toml
run dpsql ledger grant --note "a second project"

say "9. The stored answers are still free, and there is more budget for new ones."
run dpsql query "$bounded" --details
run dpsql budget --last 0 | sed -n 1,7p
