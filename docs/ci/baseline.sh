#!/usr/bin/env bash
# Runs a profile, and compares it with the runs of earlier revisions on the same machine, or adds
# it to them.
#
#   docs/ci/baseline.sh check HISTORY
#   docs/ci/baseline.sh record HISTORY
#
# HISTORY is a folder that outlives the job, such as a checkout of a branch for nothing else. Stored
# runs of another machine, or of this one at another speed, are not used.
# Exit codes: 0 as good, 4 a regression, 7 too few stored runs that can be compared, 3 a gate was
# missed, 5 an invalid run, 2 refused: this machine cannot measure the profile, 6 something could
# not be installed or has died.
# Variables: PROFILE; SUMMARY, a file to which the outcome is appended as Markdown.
set -euo pipefail
action=${1:?check or record}
history=$(realpath -m "${2:?the folder of the history}")
cd "$(dirname "$0")/../.."
profile=${PROFILE:-dev-50}
summary=${SUMMARY:-/dev/null}
loaddriver=.venv/bin/loaddriver

if [[ $action != check && $action != record ]]; then
  echo "$action: neither check nor record" >&2
  exit 2
fi

make setup binaries || exit 6 # make itself ends with 2, whatever failed
"$loaddriver" doctor "$profile" || exit
missed=0
"$loaddriver" run "$profile" || missed=$?
if ((missed != 0 && missed != 3)); then
  exit "$missed" # there is no measurement
fi

if [[ $action == record ]]; then
  "$loaddriver" history add results/latest --history "$history"
  exit "$missed"
fi
status=0
outcome=$("$loaddriver" history check results/latest --history "$history") || status=$?
printf '%s\n' "$outcome"
cat >>"$summary" <<END
\`\`\`
$outcome
\`\`\`
END
# A regression says more than the gate that it may have missed.
exit "$((status == 4 || missed == 0 ? status : missed))"
