#!/bin/sh
# Posts the finding to a webhook. Its address is the argument; keep a secret one in here: the run file has the command.
exec curl --silent --show-error --fail --max-time 30 --header 'Content-Type: application/json' --data-binary @- "$1"
