#!/bin/sh
# collect.sh COMMAND...: runs a command on simulated devices twice. The first run only finds out which kernels the
# command needs, and ends with compiling them, many at once (sim_build.c). Its results are wrong and not shown.
SIM_COLLECT=1 "$@" > /dev/null 2>&1
exec "$@"
