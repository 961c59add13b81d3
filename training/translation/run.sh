#!/bin/sh
# Runs the whole pipeline into a folder: sh training/translation/run.sh WORK [options]
# The two trainings run side by side, one core each. Stopped at any moment, it goes on when started
# again.
set -eu
work=$1
shift
python=${PYTHON:-python3}
step() { nice -n 19 "$python" -m training.translation "$work" "$@"; }

step fetch split pieces synthesise
step train:en-es "$@" &
first=$!
step train:es-en "$@" &
second=$!
trap 'kill "$first" "$second" 2>/dev/null' INT TERM
wait "$first"
wait "$second"
step export evaluate "$@"
