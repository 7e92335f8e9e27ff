# For scripts in bash, which source it: tells how long each of their stages takes.
# shellcheck shell=bash
#
#   stage NAME   ends the stage before, if there is one, and begins this one
#
# When the script ends, however it does, a table shows all stages. A script that another one calls
# adds its stages to the table of that one.

stage_name=
stage_begin=0

stage_end() {
  [ -n "$stage_name" ] || return 0
  local seconds=$((SECONDS - stage_begin))
  printf '== %s: %d:%02d\n' "$stage_name" $((seconds / 60)) $((seconds % 60)) >&2
  printf '%d %s\n' "$seconds" "$stage_name" >>"$OCTET_STAGES"
  stage_name=
}

stage() {
  stage_end
  stage_name=$1
  stage_begin=$SECONDS
  printf '== [%d:%02d] %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$stage_name" >&2
}

stages_table() {
  awk '{
         seconds = $1; sub(/^[0-9]+ /, ""); sum += seconds
         printf "%6d:%02d  %s\n", seconds / 60, seconds % 60, $0
       }
       END { printf "%6d:%02d  in all\n", sum / 60, sum % 60 }' "$OCTET_STAGES" >&2
}

if [ -z "${OCTET_STAGES:-}" ]; then
  OCTET_STAGES=$(mktemp)
  export OCTET_STAGES
  trap 'stage_end; stages_table; rm -f "$OCTET_STAGES"' EXIT
else
  trap stage_end EXIT
fi
