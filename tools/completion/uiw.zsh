#compdef uiw
# SPDX-License-Identifier: MIT
# Completion of uiw for zsh: the specifications of _arguments, see zshcompsys(1). The value of an option is one of the words
# in parentheses, a file, or ": " for any text.
# tests/apps/interfaces/completion.py compares what is offered with what `uiw --help` prints.

_uiw() {
  local curcontext=$curcontext context state state_descr line result=1
  local -a subcommands help
  typeset -A opt_args
  subcommands=(
    "run:Run a program with uiw's RDMA devices"
    'devices:List the RDMA devices that uiw offers on this machine'
    'doctor:Check that uiw works here, and say what to do where it does not'
    'bench:Measure RDMA over uiw beside plain TCP, on this machine'
    "completion:Print a script that makes a shell complete uiw's command line"
  )
  help=('(-h --help)'{-h,--help}'[Print this help message and exit]')
  _arguments -C $help \
    '--version[Print the version and exit]' \
    '(-): :->command' \
    '(-)*:: :->arguments' && result=0
  case $state in
  command) _describe -t commands command subcommands && result=0 ;;
  arguments)
    curcontext=${curcontext%:*}-$words[1]:
    case $words[1] in
    run)
      # _arguments would take a "--" that comes before all options for the program.
      (( CURRENT > 2 )) && [[ $words[2] == -- ]] && words[2]=() CURRENT=$((CURRENT - 1))
      _arguments -S $help \
        '--crc=[MPA CRC32c; auto is off where both ends are this host (default auto)]:when:(auto on off)' \
        '--markers=[ask peers for MPA markers, and stay on TCP (default off)]:whether:(off on)' \
        '--completion=[Sends and Writes complete once TCP (local) or the peer (remote) has them (default auto)]:rule:(auto local remote)' \
        '--devices=[network interfaces to offer as devices\: IFACE\[=NAME\]\[,...\]]:interfaces: ' \
        '--mulpdu=[largest ULPDU sent, in octets (default 0, which follows TCP)]:octets: ' \
        '--startup-timeout=[deadline of a connection set-up, in milliseconds (default 10000)]:milliseconds: ' \
        '--mpa-revision=[revision of the first MPA request (default 2)]:revision:(1 2)' \
        '--first-message=[side that may send first without a peer-to-peer mode (default any)]:side:(any initiator)' \
        '--port-range=[TCP ports for connections made without rdma_cm]:FIRST-LAST: ' \
        '--multicast-port=[UDP port of datagrams to multicast groups (default 14791)]:port: ' \
        '--same-host=[connections on this host\: shared memory (auto) or TCP (default auto)]:way:(auto tcp)' \
        '--progress-threads=[largest number of progress threads for each device (default auto)]:number: ' \
        '--mtu=[active MTU of the devices, in octets (default 0, which follows the interface)]:octets:(0 256 512 1024 2048 4096)' \
        '--transport=[kind of adapter that programs see; connections are iWARP in both (default iwarp)]:kind:(iwarp roce)' \
        '--runtime-dir=[where the small sysfs tree is put]:directory:_files -/' \
        '--log=[file for a line on each event, or - for standard error]:file:_files' \
        '--log-level=[failures alone, or each call, connection and refusal too (default info)]:level:(error info)' \
        '--capture=[file for what connections carry, in the form of Wireshark]:file:_files' \
        '--fault=[what the program meets, to test it; uiw(7) has the rules]:rules: ' \
        '--check=-[report what the program does wrong with verbs (default off)]::what:(on off all order)' \
        '--check-exit=[exit status of a checked program with a fault (default 0, that of the program)]:status: ' \
        '--check-report=[file for what the check has found, as JSON]:file:_files' \
        '--check-seed=[what the order of --check=order depends on (default 1)]:number: ' \
        '--check-suppress=[file of faults that are known]:file:_files' \
        '--messages=[a line on standard error where something could not be had (default on)]:whether:(on off)' \
        '(-):program: _command_names -e' \
        '(-)*::arguments: _normal' && result=0
      ;;
    devices)
      _arguments -S $help \
        '--json[Print JSON]' \
        '--sysfs[Print the directory that stands for /sys]' && result=0
      ;;
    doctor)
      _arguments -S $help \
        '--json[Print JSON]' && result=0
      ;;
    bench)
      _arguments -S $help \
        '--json[Print JSON]' \
        '--runs=[how often each pair is measured (default 5)]:number: ' \
        '--duration=[seconds of each measurement (default 1)]:seconds: ' \
        '--quick[Measure each once, for a second at most]' \
        '--rows=[which rows are measured (default basic)]:rows:(basic events connections server pinned all)' \
        '--plot=[draw bandwidth over message size, and latency, as SVG]:file:_files' && result=0
      ;;
    completion) _arguments -S $help ':shell:(bash zsh fish)' && result=0 ;;
    esac
    ;;
  esac
  return result
}

# As a file of $fpath this is the function itself; read by `source` or `eval`, it registers the function.
if [[ $funcstack[1] == _uiw ]]; then
  _uiw "$@"
else
  compdef _uiw uiw
fi
