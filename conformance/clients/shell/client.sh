#!/bin/bash
# Publishes, gets, consumes, rejects and calls with amqp-tools.
# The broker is the first argument, else AMQP_URL.
#
# The tools know neither confirms nor mandatory; the C program beside, on the same library, checks these.
set -eu
uri=${1:-${AMQP_URL:?}} queue=client.shell.$$ replies=client.shell.$$.replies

check() { # check NAME WANT GOT
  [ "$2" = "$3" ] || { echo "FAILED $1: want '$2', got '$3'" >&2; exit 1; }
  echo "ok $1"
}
publish() { amqp-publish --url="$uri" --routing-key="$@"; }
get() { amqp-get --url="$uri" --queue="$1"; }
consume() { timeout 5 amqp-consume --url="$uri" --queue="$queue" "$@"; }
trap 'for q in "$queue" "$replies"; do amqp-delete-queue --url="$uri" --queue="$q" >/dev/null 2>&1 || true; done' EXIT

check declare "$queue" "$(amqp-declare-queue --url="$uri" --queue="$queue")"

publish "$queue" --body=one
printf 'two\nthree\n' | publish "$queue" --line-buffered
check get one "$(get "$queue")"
check consume "two three" "$(consume --count=2 -- xargs | xargs)"

# A command that fails leaves its message unacknowledged, so it is requeued when the tool ends.
publish "$queue" --body=again
consume --count=1 -- false || true
check requeue again "$(get "$queue")"
check empty "" "$(get "$queue" || true)"

# A message that a command takes from one queue and answers in another.
amqp-declare-queue --url="$uri" --queue="$replies" >/dev/null
publish "$queue" --reply-to="$replies" --body=ping
consume --count=1 -- sh -c "sed 's/\$/ pong/' | amqp-publish --url='$uri' --routing-key='$replies'"
check rpc "ping pong" "$(get "$replies")"
