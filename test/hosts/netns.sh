#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Two "hosts" on this machine: network namespaces joined by a veth pair whose both
# ends are shaped (tc tbf), each with a host name of its own. Root only. With HOSTS=3
# (or 4) in the environment of every call there are NAME-c (and NAME-d), too, all of
# them on a bridge in the namespace NAME-s, each by a pair that is shaped likewise.
#
#   netns.sh up NAME RATE [DELAY [BURST]]
#                                   make hosts NAME-a (10.77.N.1) and NAME-b
#                                   (10.77.N.2); RATE as in tc (1gbit, 200mbit),
#                                   DELAY of each direction as in netem (50us, or
#                                   ""), BURST in kb, what passes at once after a
#                                   pause (256kb; segments are at most half of it)
#   netns.sh exec NAME-x CMD...     run CMD on a host
#   netns.sh agent ADDRESS CMD...   the same, as the remote shell of an mpirun: CMD
#                                   goes through a shell; needs HOSTS_NETNS=NAME
#   netns.sh address NAME x         the address of host x (a, b, ...)
#   netns.sh mpirun LIB NAME N ARGS...  mpirun of LIB (openmpi, mpich) on host a, N
#                                   ranks, equal parts of them on every host, the
#                                   first hosts having one more where N does not divide
#   netns.sh down NAME              end what still runs there and remove both
#
# HOSTS_OWNER=PID in the environment of `up` says whose they are. Where that process is
# gone, killed so that it could not take its hosts down, the next such `up` does.
#
# A link of known rate is also what overlap of communication and computation is
# measured on: test/hosts/README.md.

set -euo pipefail
self=$(readlink -f "$0")

die() { echo "netns.sh: $*" >&2; exit 2; }

[ "$(id -u)" = 0 ] || die "making network namespaces needs root"
for tool in ip tc unshare hostname; do
  command -v "$tool" >/dev/null || PATH=$PATH:/usr/sbin:/sbin
  command -v "$tool" >/dev/null || die "needs '$tool': apt install iproute2 util-linux hostname"
done

sides=(a b c d)
[[ ${HOSTS:=2} =~ ^[234]$ ]] || die "HOSTS is 2, 3 or 4, not '$HOSTS'"
sides=("${sides[@]:0:$HOSTS}")

# A subnet of 10.77.0.0/16 per name, so that several pairs can be up at once.
subnet() { echo "10.77.$(( $(printf %s "$1" | cksum | cut -d' ' -f1) % 250 + 1 ))"; }
address() {
  local number
  for number in "${!sides[@]}"; do
    if [ "${sides[number]}" = "$2" ]; then
      echo "$(subnet "$1").$((number + 1))"
      return
    fi
  done
  die "host '$2': there are ${sides[*]}"
}

# Whatever the namespace holds: a PID that is gone in the meantime is no error.
end_processes() {
  local signal
  for signal in TERM KILL; do
    local pids
    pids=$(ip netns pids "$1" 2>/dev/null) || return 0
    [ -n "$pids" ] || return 0
    kill -s "$signal" $pids 2>/dev/null || true
    sleep 0.3
  done
}

# When a process began, in the system's ticks: its PID may be another's by now.
began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

records=/run/concord-hosts

# Take down what owners that are gone have left, and note the new one.
own() {
  local name=$1 record pid since
  mkdir -p "$records"
  for record in "$records"/*; do
    [ -e "$record" ] || continue
    read -r pid since <"$record" || true
    if [ "$(began "${pid:-none}")" != "${since:-}" ] || [ -z "${since:-}" ]; then
      down "${record##*/}"
    fi
  done
  echo "$HOSTS_OWNER $(began "$HOSTS_OWNER")" >"$records/$name"
}

up() {
  local name=$1 rate=$2 delay=${3:-} burst=${4:-256kb}
  [ ${#name} -le 11 ] || die "the name '$name' is longer than 11 characters"
  [[ $burst =~ ^[0-9]+kb$ ]] || die "BURST is a number of kb (128kb), not '$burst'"
  [ -z "${HOSTS_OWNER:-}" ] || own "$name"
  local side
  for side in "${sides[@]}"; do
    ip netns add "$name-$side"
    ip -n "$name-$side" link set lo up
  done
  if [ "$HOSTS" = 2 ]; then
    ip -n "$name-a" link add "$name-a" type veth peer name "$name-b" netns "$name-b"
  else
    ip netns add "$name-s"
    ip -n "$name-s" link add bridge type bridge
    ip -n "$name-s" link set bridge up
    for side in "${sides[@]}"; do
      ip -n "$name-$side" link add "$name-$side" type veth peer name "port-$side" \
        netns "$name-s"
      ip -n "$name-s" link set "port-$side" master bridge up
      shape "$name-s" "port-$side" "$rate" "$delay" "$burst"
    done
  fi
  for side in "${sides[@]}"; do
    ip -n "$name-$side" addr add "$(address "$name" "$side")/24" dev "$name-$side"
    ip -n "$name-$side" link set "$name-$side" up
    shape "$name-$side" "$name-$side" "$rate" "$delay" "$burst"
  done
}

# What leaves a device of a namespace.
shape() {
  local space=$1 device=$2 rate=$3 delay=$4 burst=$5
  # A segment that is larger than the burst would never pass.
  [ "${burst%kb}" -ge 128 ] ||
    ip -n "$space" link set "$device" gso_max_size $((${burst%kb} * 512))
  # Whole segments cost nothing to send otherwise, and the shaper sees bursts.
  ip netns exec "$space" tc qdisc add dev "$device" root handle 1: \
    tbf rate "$rate" burst "$burst" latency 50ms
  if [ -n "$delay" ]; then
    ip netns exec "$space" tc qdisc add dev "$device" parent 1: \
      handle 2: netem delay "$delay" limit 10000
  fi
}

down() {
  local name=$1 side
  for side in a b c d s; do
    if ip netns list | grep -q "^$name-$side\b"; then
      end_processes "$name-$side"
      ip netns del "$name-$side"
    fi
  done
  rm -f "$records/$name"
}

# The host name is the namespace's, in a UTS namespace of the process. HOSTS_CORES,
# as "0,1", are the cores of a and of the others.
on() {
  local host=$1
  shift
  if [ -n "${HOSTS_CORES:-}" ]; then
    case "$host" in
      *-a) set -- taskset -c "${HOSTS_CORES%%,*}" "$@" ;;
      *) set -- taskset -c "${HOSTS_CORES#*,}" "$@" ;;
    esac
  fi
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
}

start_mpirun() {
  local library=$1 name=$2 ranks=$3
  shift 3
  local list="" number
  for number in "${!sides[@]}"; do
    list+=${list:+,}$(address "$name" "${sides[number]}"):$(((ranks + HOSTS - 1 - number) / HOSTS))
  done
  export HOSTS_NETNS=$name HOSTS
  case "$library" in
    openmpi)
      # The agent's path may have no blanks; Open MPI splits it.
      on "$name-a" mpirun.openmpi --allow-run-as-root --oversubscribe \
        --bind-to none --mca plm_rsh_agent "$self agent" --mca orte_keep_fqdn_hostnames 1 \
        --mca btl self,vader,tcp --mca oob_tcp_if_include "$(subnet "$name").0/24" \
        --mca btl_tcp_if_include "$(subnet "$name").0/24" ${MPIRUN_MORE:-} \
        --host "$list" -n "$ranks" "$@" ;;
    mpich)
      # Both hosts have one kernel, over whose memory UCX would go otherwise.
      export UCX_TLS=tcp,self UCX_WARN_UNUSED_ENV_VARS=n
      on "$name-a" mpirun.mpich -launcher ssh -launcher-exec "$self.agent" \
        ${MPIRUN_MORE:-} -hosts "$list" -n "$ranks" "$@" ;;
    *) die "mpirun of '$library': there are openmpi and mpich" ;;
  esac
}

command=${1:-}
[ $# -gt 0 ] && shift
case "$command" in
  up) [ $# -ge 2 ] || die "up NAME RATE [DELAY [BURST]]"; up "$@" ;;
  down) [ $# -eq 1 ] || die "down NAME"; down "$@" ;;
  exec) [ $# -ge 2 ] || die "exec HOST CMD..."; on "$@" ;;
  address) [ $# -eq 2 ] || die "address NAME a|b"; address "$@" ;;
  mpirun) [ $# -ge 4 ] || die "mpirun LIBRARY NAME RANKS CMD..."; start_mpirun "$@" ;;
  agent)
    # Options that are meant for ssh come first.
    while [ $# -gt 0 ] && [ "${1#-}" != "$1" ]; do shift; done
    host=$1
    shift
    name=${HOSTS_NETNS:?not set: the agent serves netns.sh mpirun}
    side=""
    for each in "${sides[@]}"; do
      [ "$host" != "$(address "$name" "$each")" ] || side=$each
    done
    [ -n "$side" ] || die "'$host' is no host of $name"
    on "$name-$side" sh -c "$*" ;;
  *) die "'$command': there are up, exec, mpirun, address, agent and down" ;;
esac
