#!/usr/bin/env bash
# Nodes with a slow network between them, on one machine. SPDX-License-Identifier: Apache-2.0
#
# A node is a process that sleeps in namespaces of its own (network, host name, process numbers, IPC, mounts). It lives
# as long as this script, and with it its network and all that runs in it: nothing is left, however the script ends.
set -euo pipefail

usage() {
  cat <<'END'
usage: network.sh serve NODES RATE      the nodes, until the end of standard input
       network.sh enter HOST COMMAND    one command in a node, as ssh would run it (for mpiexec -launcher-exec)

serve prints "folder PATH" (for files that shall go with the nodes), "switch PID", "node I ADDRESS PID" for each node,
"network ..." (below), then "ready", and reads commands:
  rate RATE     another rate for every link, such as 200mbit; answers "rate RATE"
Each node has an equal share of the cores, and one link to a switch: RATE in each direction, enforced by tc tbf. Start
programs that use the network in the switch or in a node: nsenter --target PID --net COMMAND.
enter finds the node of an address in ATOLL_NETWORK, "ADDRESS=PID=CORES ...", which serve prints as "network ...".
Needs root, iproute2 and util-linux. Exit status 77: the machine does not permit it.
END
}

fail() { echo "network.sh: $1" >&2; exit "${2:-1}"; }

burst_of() { # RATE: what may pass at once, 1 ms of the rate; the kernel needs some packets
  awk -v r="$1" 'BEGIN { n = r + 0; if (r ~ /kbit/) n *= 1e3; if (r ~ /mbit/) n *= 1e6; if (r ~ /gbit/) n *= 1e9
                         b = int(n / 8000); print b < 18000 ? 18000 : b }'
}

set_rate() { # RATE: both ends of every link
  [[ $1 =~ ^[1-9][0-9]*[kmg]bit$ ]] || fail "the rate '$1' is none; for example 200mbit or 1gbit" 2
  local i burst
  burst=$(burst_of "$1")
  for i in "${!pids[@]}"; do
    nsenter --target "${pids[i]}" --net tc qdisc replace dev eth0 root tbf rate "$1" burst "$burst" latency 100ms
    nsenter --target "$switch" --net tc qdisc replace dev "port$i" root tbf rate "$1" burst "$burst" latency 100ms
  done
}

start_node() { # NAME UNSHARE-OPTIONS...
  local ready=$folder/$1
  shift
  # shellcheck disable=SC2016 # for the inner shell
  setpriv --pdeathsig KILL unshare --kill-child --fork "$@" -- bash -c 'touch "$1" && exec sleep infinity' node \
    "$ready" </dev/null >/dev/null 2>"$folder/error" &
  holders+=($!)
  disown $! # no message when it is killed
  for _ in $(seq 200); do
    [[ -e $ready ]] && return
    kill -0 "${holders[-1]}" 2>/dev/null || fail "cannot make a namespace here: $(cat "$folder/error")" 77
    sleep 0.02
  done
  fail "the node does not start: $(cat "$folder/error")"
}

dress_node() { # PID NAME: what a node of its own would have
  nsenter --target "$1" --net ip link set lo up
  nsenter --target "$1" --uts hostname "$2"
  # shellcheck disable=SC2016 # for the inner shell
  nsenter --target "$1" --mount --pid -- bash -c '
    mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs -o mode=1777 tmpfs /dev/shm &&
    mount --bind "$1" /etc/hosts' node "$folder/hosts"
}

serve() {
  local nodes=$1 rate=$2 i pid tool cores=() allowed line network=''
  [[ $nodes =~ ^[1-9][0-9]?$ ]] || fail "'$nodes' nodes: 1 to 99" 2
  for tool in ip tc unshare nsenter setpriv taskset mount hostname awk; do
    command -v "$tool" >/dev/null || fail "'$tool' is not installed (Debian: iproute2, util-linux, hostname)" 77
  done
  [[ $EUID -eq 0 ]] || fail "needs root to make networks; run it as root, or on a real network" 77
  folder=$(mktemp -d "${TMPDIR:-/tmp}/atoll-network.XXXXXX")
  trap 'for pid in "${holders[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done; rm -rf "$folder"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  mapfile -t allowed < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); ++i) print i }')
  for ((i = 0; i < nodes; i++)); do # neighbouring cores; where there are too few, nodes share them
    local first=$((i * ${#allowed[@]} / nodes)) last=$(((i + 1) * ${#allowed[@]} / nodes))
    [[ $last -gt $first ]] || last=$((first + 1))
    cores+=("$(IFS=,; echo "${allowed[*]:first:last-first}")")
  done

  start_node switch --net
  switch=$(machine_pid "${holders[0]}")
  nsenter --target "$switch" --net bash -c '
    ip link set lo up && ip link add br0 mtu 9000 type bridge && ip addr add 10.98.0.254/24 dev br0 &&
    ip link set br0 up' || fail "cannot make a bridge here" 77
  printf '127.0.0.1 localhost\n' >"$folder/hosts"
  for ((i = 0; i < nodes; i++)); do printf '10.98.0.%d node%d\n' $((i + 1)) "$i" >>"$folder/hosts"; done
  for ((i = 0; i < nodes; i++)); do
    start_node "node$i" --net --uts --ipc --pid --mount
    pid=$(machine_pid "${holders[i + 1]}")
    pids+=("$pid")
    dress_node "$pid" "node$i" || fail "cannot mount in a namespace here" 77
    nsenter --target "$switch" --net ip link add "port$i" mtu 9000 type veth peer name eth0 mtu 9000 netns "$pid" ||
      fail "cannot link namespaces here" 77
    nsenter --target "$switch" --net ip link set "port$i" master br0 up
    nsenter --target "$pid" --net ip addr add "10.98.0.$((i + 1))/24" dev eth0
    nsenter --target "$pid" --net ip link set eth0 up
    network+="10.98.0.$((i + 1))=$pid=${cores[i]} "
  done
  set_rate "$rate" || fail "tc tbf does not work here" 77
  echo "folder $folder"
  echo "switch $switch"
  for i in "${!pids[@]}"; do echo "node $i 10.98.0.$((i + 1)) ${pids[i]}"; done
  echo "network $network"
  echo ready
  while read -r line; do
    case $line in
      'rate '*) set_rate "${line#rate }"; echo "$line" ;;
      *) fail "unknown command '$line'" 2 ;;
    esac
  done
}

machine_pid() { # PID of unshare: the one child that it waits for, in the machine's own numbers
  tr -d ' \n' <"/proc/$1/task/$1/children"
}

enter() {
  while [[ ${1-} == -* ]]; do shift; done # options of ssh
  local host=$1 entry
  shift
  # shellcheck disable=SC2093 # goes on only at another node
  for entry in ${ATOLL_NETWORK:?}; do
    IFS='=' read -r address pid cores <<<"$entry"
    [[ $address == "$host" ]] || continue
    exec nsenter --target "$pid" --net --uts --ipc --pid --mount -- taskset -c "$cores" bash -c "$*"
  done
  fail "there is no node '$host'" 2
}

folder='' switch='' holders=() pids=()
case ${1-} in
  serve) [[ $# -eq 3 ]] || { usage >&2; exit 2; }; serve "$2" "$3" ;;
  enter) [[ $# -ge 3 ]] || { usage >&2; exit 2; }; shift; enter "$@" ;;
  -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
