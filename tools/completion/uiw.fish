# SPDX-License-Identifier: MIT
# Completion of uiw for fish: functions that say where the cursor is, and a table of what is offered there, see
# complete(1). The value of an option is one of the words of -a, a file with -rF, or any text with -x alone.
# tests/apps/interfaces/completion.py compares what is offered with what `uiw --help` prints.

# Whether the words before the cursor begin with the subcommand $argv[1]; without an argument, whether there is no
# subcommand.
function __uiw_words
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"
end

# Whether __uiw_words is true, and the word at the cursor does not belong to the program of `uiw run`.
function __uiw_at
    __uiw_words $argv; or return
    test "$argv[1]" != run; or test (__uiw_place) -gt (count (commandline -opc))
end

# The number of the word that is the program of `uiw run`. All options before it take a value, except for --help.
function __uiw_place
    set -l words (commandline -opc)
    set -l place 3
    while test $place -le (count $words)
        switch $words[$place]
            case --
                set place (math $place + 1)
                break
            case -h --help '-*=*'
                set place (math $place + 1)
            case '-*'
                set place (math $place + 2)
            case '*'
                break
        end
    end
    echo $place
end

# Offers what fish offers for the program of `uiw run` and its arguments.
function __uiw_program
    set -l words (commandline -opc)
    set -l place (__uiw_place)
    set -l line (commandline -ct)
    if test $place -le (count $words)
        set line (string escape -- $words[$place..-1]) $line
    else if string match -q -- '-*' "$line"
        return
    end
    complete -C "$line"
end

complete -c uiw -f
complete -c uiw -n '__uiw_at (commandline -opc)[2]' -s h -l help -d 'Print this help message and exit'
complete -c uiw -n __uiw_at -l version -d 'Print the version and exit'
complete -c uiw -n __uiw_at -a run -d "Run a program with uiw's RDMA devices"
complete -c uiw -n __uiw_at -a devices -d 'List the RDMA devices that uiw offers on this machine'
complete -c uiw -n __uiw_at -a doctor -d 'Check that uiw works here, and say what to do where it does not'
complete -c uiw -n __uiw_at -a bench -d 'Measure RDMA over uiw beside plain TCP, on this machine'
complete -c uiw -n __uiw_at -a completion -d "Print a script that makes a shell complete uiw's command line"

complete -c uiw -n '__uiw_at run' -l crc -xa 'auto on off' -d 'MPA CRC32c; auto is off where both ends are this host (default auto)'
complete -c uiw -n '__uiw_at run' -l markers -xa 'off on' -d 'ask peers for MPA markers, and stay on TCP (default off)'
complete -c uiw -n '__uiw_at run' -l completion -xa 'auto local remote' -d 'Sends and Writes complete once TCP (local) or the peer (remote) has them (default auto)'
complete -c uiw -n '__uiw_at run' -l devices -x -d 'network interfaces to offer as devices: IFACE[=NAME][,...]'
complete -c uiw -n '__uiw_at run' -l mulpdu -x -d 'largest ULPDU sent, in octets (default 0, which follows TCP)'
complete -c uiw -n '__uiw_at run' -l startup-timeout -x -d 'deadline of a connection set-up, in milliseconds (default 10000)'
complete -c uiw -n '__uiw_at run' -l mpa-revision -xa '1 2' -d 'revision of the first MPA request (default 2)'
complete -c uiw -n '__uiw_at run' -l first-message -xa 'any initiator' -d 'side that may send first without a peer-to-peer mode (default any)'
complete -c uiw -n '__uiw_at run' -l port-range -x -d 'TCP ports for connections made without rdma_cm: FIRST-LAST'
complete -c uiw -n '__uiw_at run' -l multicast-port -x -d 'UDP port of datagrams to multicast groups (default 14791)'
complete -c uiw -n '__uiw_at run' -l same-host -xa 'auto tcp' -d 'connections on this host: shared memory (auto) or TCP (default auto)'
complete -c uiw -n '__uiw_at run' -l progress-threads -x -d 'largest number of progress threads for each device (default auto)'
complete -c uiw -n '__uiw_at run' -l mtu -xa '0 256 512 1024 2048 4096' -d 'active MTU of the devices, in octets (default 0, which follows the interface)'
complete -c uiw -n '__uiw_at run' -l transport -xa 'iwarp roce' -d 'kind of adapter that programs see; connections are iWARP in both (default iwarp)'
complete -c uiw -n '__uiw_at run' -l runtime-dir -xa '(__fish_complete_directories)' -d 'where the small sysfs tree is put'
complete -c uiw -n '__uiw_at run' -l log -rF -d 'file for a line on each event, or - for standard error'
complete -c uiw -n '__uiw_at run' -l log-level -xa 'error info' -d 'failures alone, or each call, connection and refusal too (default info)'
complete -c uiw -n '__uiw_at run' -l capture -rF -d 'file for what connections carry, in the form of Wireshark'
complete -c uiw -n '__uiw_at run' -l fault -x -d 'what the program meets, to test it; uiw(7) has the rules'
complete -c uiw -n '__uiw_at run' -l check -d 'report what the program does wrong with verbs (default off)'
complete -c uiw -n '__uiw_at run' -l check-exit -x -d 'exit status of a checked program with a fault (default 0, that of the program)'
complete -c uiw -n '__uiw_at run' -l check-report -rF -d 'file for what the check has found, as JSON'
complete -c uiw -n '__uiw_at run' -l check-seed -x -d 'what the order of --check=order depends on (default 1)'
complete -c uiw -n '__uiw_at run' -l check-suppress -rF -d 'file of faults that are known'
complete -c uiw -n '__uiw_at run' -l messages -xa 'on off' -d 'a line on standard error where something could not be had (default on)'
complete -c uiw -n '__uiw_words run' -a '(__uiw_program)'

complete -c uiw -n '__uiw_at devices' -l json -d 'Print JSON'
complete -c uiw -n '__uiw_at devices' -l sysfs -d 'Print the directory that stands for /sys'

complete -c uiw -n '__uiw_at doctor' -l json -d 'Print JSON'

complete -c uiw -n '__uiw_at bench' -l json -d 'Print JSON'
complete -c uiw -n '__uiw_at bench' -l runs -x -d 'how often each pair is measured (default 5)'
complete -c uiw -n '__uiw_at bench' -l duration -x -d 'seconds of each measurement (default 1)'
complete -c uiw -n '__uiw_at bench' -l quick -d 'Measure each once, for a second at most'
complete -c uiw -n '__uiw_at bench' -l rows -xa 'basic events connections server pinned all' -d 'which rows are measured (default basic)'
complete -c uiw -n '__uiw_at bench' -l plot -rF -d 'draw bandwidth over message size, and latency, as SVG'

complete -c uiw -n '__uiw_at completion; and test (count (commandline -opc)) -eq 2' -xa 'bash zsh fish'
