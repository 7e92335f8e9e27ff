# For scripts in bash, which source it: tells how long each of their stages takes.
# shellcheck shell=bash
#
#   stage NAME   ends the stage before, if there is one, and begins this one
#
# When the script ends, however it does, a table shows all stages: minutes, and minutes of processor
# time, which other work on the machine hardly changes. ~/.cache/octet/stages.log keeps the tables.
# A script that another one calls adds its stages to the table of that one.

stage_name=
stage_begin=0
stage_cpu_begin=0

# stage_cpu_seconds: sets `cpu_seconds` to what the commands of this script have used so far.
stage_cpu_seconds() {
  times >"$OCTET_STAGES.times"
  cpu_seconds=$(awk 'NR == 2 { gsub(/[ms]/, " "); printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' \
    "$OCTET_STAGES.times")
}

stage_end() {
  [ -n "$stage_name" ] || return 0
  local seconds=$((SECONDS - stage_begin)) cpu_seconds
  stage_cpu_seconds
  printf '== %s: %d:%02d\n' "$stage_name" $((seconds / 60)) $((seconds % 60)) >&2
  printf '%d %d %s\n' "$seconds" $((cpu_seconds - stage_cpu_begin)) "$stage_name" >>"$OCTET_STAGES"
  stage_name=
}

stage() {
  stage_end
  stage_name=$1
  stage_begin=$SECONDS
  local cpu_seconds
  stage_cpu_seconds
  stage_cpu_begin=$cpu_seconds
  printf '== [%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$stage_name" >&2
}

stages_table() {
  local log=${XDG_CACHE_HOME:-$HOME/.cache}/octet/stages.log
  mkdir -p "${log%/*}"
  printf '%s, %s, %s\n' "$0" "$(date -u '+%F %R')" "$(git describe --always --dirty 2>/dev/null)" \
    >>"$log"
  awk 'BEGIN { print "   time     cpu  stage" }
       { seconds = $1; cpu = $2; sub(/^[0-9]+ [0-9]+ /, ""); sum += seconds; cpus += cpu; show($0) }
       END { seconds = sum; cpu = cpus; show("in all") }
       function show(what) {
         printf "%4d:%02d %4d:%02d  %s\n", seconds / 60, seconds % 60, cpu / 60, cpu % 60, what
       }' "$OCTET_STAGES" | tee -a "$log" >&2
}

if [ -z "${OCTET_STAGES:-}" ]; then
  OCTET_STAGES=$(mktemp)
  export OCTET_STAGES
  trap 'stage_end; stages_table; rm -f "$OCTET_STAGES"*' EXIT
else
  trap stage_end EXIT
fi
