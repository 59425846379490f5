//===- CollectScript.cpp - Gathering evidence over ssh
//---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text of `comm-doctor --collect-script`.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Evidence.h"

namespace concord::order::evidence {

std::string collectScript() {
  return R"SCRIPT(#!/bin/sh
# Gathers the evidence of a hung multi-rank job from hosts over ssh.
# Usage: collect.sh OUTDIR PATTERN HOST...
#   PATTERN  what the command line of the job's processes contains
# Environment, where the files are on the hosts (defaults in brackets), besides
# what the environments of the processes themselves name:
#   FR_GLOB    Flight Recorder dumps      [/tmp/nccl_trace_rank_*]
#   HCCL_LOG   HCCL logs                  [$HOME/ascend/log]
#   TABLE      rank table                 [$RANK_TABLE_FILE]
# Reads only; no process is stopped for longer than a stack takes.
set -u
if [ $# -lt 3 ]; then
  sed -n '2,9p' "$0"
  exit 2
fi
out=$1 pattern=$2
shift 2
FR_GLOB=${FR_GLOB:-/tmp/nccl_trace_rank_*}
mkdir -p "$out" || exit 1
for host in "$@"; do
  echo "gathering from $host" >&2
  ssh -o BatchMode=yes -o ConnectTimeout=10 "$host" \
    PATTERN="'$pattern'" FR_GLOB="'$FR_GLOB'" HCCL_LOG="'${HCCL_LOG:-}'" TABLE="'${TABLE:-}'" sh -s <<'REMOTE' > "$out/$host.tar" || echo "$host: incomplete" >&2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/fr" "$work/hccl" "$work/stacks" "$work/issues"
setting() { tr '\0' '\n' < "/proc/$1/environ" 2>/dev/null | sed -n "s/^\($2\)=//p" | head -n 1; }
cp $FR_GLOB "$work/fr/" 2>/dev/null
logs=${HCCL_LOG:-$HOME/ascend/log}
[ -d "$logs" ] && cp -R "$logs/." "$work/hccl/" 2>/dev/null
table=${TABLE:-${RANK_TABLE_FILE:-}}
[ -n "$table" ] && cp "$table" "$work/rank_table.json" 2>/dev/null
for pid in $(pgrep -f -- "$PATTERN"); do
  [ "$pid" = $$ ] && continue
  rank=$(setting "$pid" 'CONCORD_RANK\|RANK\|RANK_ID\|OMPI_COMM_WORLD_RANK\|PMI_RANK\|SLURM_PROCID')
  dumps=$(setting "$pid" 'TORCH_FR_DUMP_TEMP_FILE\|TORCH_NCCL_DEBUG_INFO_TEMP_FILE')
  [ -n "$dumps" ] && cp "$dumps"* "$work/fr/" 2>/dev/null
  issues=$(setting "$pid" CONCORD_ISSUE_LOG)
  [ -d "$issues" ] && cp -R "$issues/." "$work/issues/" 2>/dev/null
  plogs=$(setting "$pid" ASCEND_PROCESS_LOG_PATH)
  [ -d "$plogs" ] && cp -R "$plogs/." "$work/hccl/" 2>/dev/null
  file="$work/stacks/pid$pid-rank_${rank:-unknown}.txt"
  if command -v pstack >/dev/null; then pstack "$pid"
  elif command -v gdb >/dev/null; then gdb -p "$pid" -batch -ex 'thread apply all bt' 2>/dev/null
  fi > "$file" 2>/dev/null
  command -v py-spy >/dev/null && py-spy dump --pid "$pid" >> "$file" 2>/dev/null
  [ -s "$file" ] || rm -f "$file"
done
tar -C "$work" -cf - .
REMOTE
  mkdir -p "$out/$host" && tar -C "$out/$host" -xf "$out/$host.tar" && rm -f "$out/$host.tar"
done
echo "now: comm-doctor $out" >&2
)SCRIPT";
}

} // namespace concord::order::evidence
