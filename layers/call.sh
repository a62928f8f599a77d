#!/bin/sh
# Run a program so that Ctrl-C ends it with one line at any moment: call.sh PROGRAM ARGUMENTS...
# A Python that is still starting would answer SIGINT with a traceback. As a background job it
# ignores SIGINT until it handles it itself. SIGTERM is forwarded and ends it silently.
set -u
child=""
stopping=""
stop() {
    stopping=yes
    [ -n "$child" ] || return 0
    # Repeated: a signal that comes before the child has become the program is lost.
    (for _ in 1 2 3 4 5 6 7 8 9; do
        kill -TERM "$child" || exit
        sleep 0.2
    done) >/dev/null 2>&1 &
}
trap stop INT TERM
"$@" &
child=$!
[ -z "$stopping" ] || stop
while :; do # a trap ends `wait` before the program has ended
    wait "$child" 2>/dev/null # or the shell says "Terminated"
    code=$?
    kill -0 "$child" 2>/dev/null || break
done
if [ "$code" -eq 143 ] && [ -n "$stopping" ]; then
    echo "strandline: interrupted" >&2
    code=130
fi
exit "$code"
