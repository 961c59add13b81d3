#!/bin/sh
# Prints the fastest of several Python interpreters, of which `make` makes its environment.
#
#     sh scripts/interpreter.sh python3.12 python3 /opt/python/bin/python3
#
# A name is looked up in all of PATH, because an interpreter that a version manager has built without
# optimisation often hides the system's, in which everything here costs a fifth less. A candidate may
# be a stub of a version manager, be too old or lack venv, so that each is tried. One with the
# headers of C comes before one without: packages without a wheel need them. Exit code 1: none works.
set -eu
speed=$(dirname "$0")/interpreter_speed.py

candidates() {
    for name in "$@"; do
        case $name in
        */*) echo "$name" ;;
        *)
            IFS=:
            for folder in $PATH; do
                if [ -x "$folder/$name" ]; then echo "$folder/$name"; fi
            done
            unset IFS
            ;;
        esac
    done
}

# Without the second name of the same program: /bin is often /usr/bin.
seen=:
best=
# Folders may have spaces in their names.
IFS='
'
for python in $(candidates "$@"); do
    real=$(readlink -f "$python" || echo "$python")
    case $seen in *:"$real":*) continue ;; esac
    seen=$seen$real:
    if found=$("$python" "$speed" 2>/dev/null); then
        best="$best$found $python
"
    fi
done
[ -n "$best" ]
printf %s "$best" | sort -n | sed -n '1s/^[^ ]* //p'
