# Completes octet, octet_mpi and octet_bench in bash: commands, flags, and files after a flag's "=". The words
# come from the programs' --help.

_octet() {
  local program=$1 current=$2 previous=$3 words
  COMPREPLY=()
  # "=" is a word of its own where COMP_WORDBREAKS has it.
  if [[ $current == "=" || $previous == "=" ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "${current#=}")
    compopt -o filenames 2>/dev/null
    return
  fi
  if [[ ${program##*/} == octet_bench ]]; then
    words=$("$program" --help 2>/dev/null | grep -oE -- '--[a-z][a-z_]*' | sort -u)
  elif [[ $COMP_CWORD -eq 1 ]]; then
    words="--help --version $("$program" --help 2>/dev/null |
      sed -n '/^commands:/,/^$/s/^  \([a-z][a-z_]*\) .*/\1/p')"
  else
    words="--help $("$program" "${COMP_WORDS[1]}" --help 2>/dev/null |
      sed -n 's/^  \(-[a-z], \)\{0,1\}\(--[a-z][a-z_0-9]*\)=.*/\2/p')"
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  # A flag goes on with "=" and a value; a command ends with a space.
  if [[ ${COMPREPLY[0]-} == --* && ${COMPREPLY[0]} != --help && ${COMPREPLY[0]} != --version ]]; then
    compopt -o nospace 2>/dev/null
  fi
}

complete -F _octet octet octet_mpi octet_bench
