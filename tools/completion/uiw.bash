# SPDX-License-Identifier: MIT
# Completion of uiw for bash: a table of the options of each command, and how it is read.
# tests/apps/interfaces/completion.py compares what is offered with what `uiw --help` prints.

# Offers the words that begin like the one at the cursor.
_uiw_offer() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word"); }

# Completes the words from number $1 on as those of another command.
_uiw_program() {
  if declare -F _comp_command_offset >/dev/null; then
    _comp_command_offset "$1"
  elif declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif [[ $1 -eq $COMP_CWORD ]]; then
    mapfile -t COMPREPLY < <(compgen -c -- "$word")
  else
    compopt -o default
  fi
}

_uiw() {
  local word=${COMP_WORDS[COMP_CWORD]} option i
  # The value of an option: one of these words, a FILE, a DIR, or any TEXT. A flag has none.
  local -A options=([-h]='' [--help]='')
  case ${COMP_WORDS[1]} in
    run) options+=(
      [--crc]='auto on off'
      [--markers]='off on'
      [--completion]='auto local remote'
      [--devices]=TEXT
      [--mulpdu]=TEXT
      [--startup-timeout]=TEXT
      [--mpa-revision]='1 2'
      [--first-message]='any initiator'
      [--port-range]=TEXT
      [--multicast-port]=TEXT
      [--same-host]='auto tcp'
      [--progress-threads]=TEXT
      [--mtu]='0 256 512 1024 2048 4096'
      [--transport]='iwarp roce'
      [--runtime-dir]=DIR
      [--log]=FILE
      [--log-level]='error info'
      [--capture]=FILE
      [--fault]=TEXT
      [--check]=''
      [--check-exit]=TEXT
      [--check-report]=FILE
      [--check-seed]=TEXT
      [--check-suppress]=FILE
      [--messages]='on off') ;;
    devices) options+=([--json]='' [--sysfs]='') ;;
    doctor) options+=([--json]='') ;;
    bench) options+=(
      [--json]=''
      [--runs]=TEXT
      [--duration]=TEXT
      [--quick]=''
      [--rows]='basic events connections server pinned all'
      [--plot]=FILE) ;;
    -*) options+=([--version]='') ;;
  esac

  # A word with "=" arrives as three, because "=" is one of readline's word breaks.
  COMPREPLY=()
  [[ $word == '=' ]] && word=''
  for ((i = 2; i < COMP_CWORD; i++)); do
    option=${COMP_WORDS[i]}
    if [[ $option != -* || $option == -- ]]; then
      [[ ${COMP_WORDS[1]} == run ]] || continue
      [[ $option == -- ]] && ((++i))
      _uiw_program "$i"
      return
    fi
    [[ ${options[$option]-} && ${COMP_WORDS[i + 1]} != '=' ]] && ((++i))
    while [[ ${COMP_WORDS[i + 1]-} == '=' ]]; do ((i += 2)); done
  done

  if ((i > COMP_CWORD && COMP_CWORD > 1)); then
    case ${options[$option]-} in
      FILE) compopt -o default ;;
      DIR) compopt -o dirnames ;;
      TEXT) ;;
      *) _uiw_offer "${options[$option]-}" ;;
    esac
  elif [[ $word == -* ]]; then
    _uiw_offer "${!options[*]}"
  elif ((COMP_CWORD == 1)); then
    _uiw_offer 'run devices doctor bench completion'
  elif [[ ${COMP_WORDS[1]} == run ]]; then
    _uiw_program "$COMP_CWORD"
  elif [[ ${COMP_WORDS[1]} == completion && $COMP_CWORD == 2 ]]; then
    _uiw_offer 'bash zsh fish'
  fi
}

complete -F _uiw uiw
