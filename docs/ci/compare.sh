#!/usr/bin/env bash
# Compares the checked-out revision with the point where it left its target branch, on this machine,
# in interleaved pairs of runs. Nothing is stored between runs of this script.
#
#   docs/ci/compare.sh [TARGET]       TARGET is a branch, such as origin/main, or a commit or tag
#
# Exit codes: 0 the same or better, 4 a regression, 7 not enough data, 5 too many invalid runs,
# 2 refused: this machine cannot measure the profile, or there is nothing to compare, 6 something
# could not be installed or has died.
# Variables: PROFILE; PAIRS, such as 6..16; SUMMARY, a file to which the outcome is appended as
# Markdown. All results are in build/comparison.
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

make setup binaries || exit 6 # make itself ends with 2, whatever failed
.venv/bin/loaddriver doctor "$profile" || exit
out=build/comparison
rm -rf "$out"
status=0
.venv/bin/loaddriver compare --base "$base" --head "$head" --profile "$profile" --out "$out" \
  ${PAIRS:+--pairs "$PAIRS"} || status=$?
for comment in "$out"/*/comparison.md; do
  if [[ -f $comment ]]; then
    cat "$comment" >>"$summary"
  fi
done
exit "$status"
