#!/usr/bin/env bash
# Compares the checked-out revision with the point where it left its target branch, on this machine,
# in interleaved pairs of runs. Nothing is stored between runs of this script.
#
#   docs/ci/compare.sh [TARGET]       TARGET is a branch, such as origin/main
#
# Exit codes: 0 the same or better, 4 a regression, 7 not enough data, 5 too many invalid runs,
# 2 refused: this machine cannot measure the profile, or there is nothing to compare.
# Variables: PROFILE; PAIRS; SUMMARY, a file to which the outcome is appended as Markdown.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:-origin/main}
profile=${PROFILE:-compare-50}
summary=${SUMMARY:-/dev/null}

head=$(git rev-parse HEAD)
base=$(git merge-base "$target" "$head") || {
  echo "no common commit with $target: fetch the whole history (a shallow clone lacks it)" >&2
  exit 2
}
if [[ $base == "$head" ]]; then
  echo "$target has this revision: there is nothing to compare" >&2
  exit 2
fi

make setup binaries
.venv/bin/loaddriver doctor "$profile" || exit
status=0
.venv/bin/loaddriver compare --base "$base" --head "$head" --profile "$profile" \
  ${PAIRS:+--pairs "$PAIRS"} || status=$?
if [[ -f results/comparison/comment.md ]]; then
  cat results/comparison/comment.md >>"$summary"
fi
exit "$status"
